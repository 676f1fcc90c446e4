"""Whoever reads everything holds up nobody who writes, and is held up by nobody."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import Engine, func, select

from polarproxy.store.archiving import chosen_sessions, survey, write_sessions
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.schema import calls
from polarproxy.store.stats import read_stats
from polarproxy.store.writer import Writer
from tests.store.filled import turn

SECONDS = 120
WRITERS, TURNS = 64, 4
ROOT = Path(__file__).parents[2]


def scan(engine: Engine, path: Path) -> None:
    """All that a reader can ask for."""
    repository = Repository(engine)
    for summary in repository.sessions():
        read = repository.calls(summary.session.session_id)
        assert [captured.call.ordinal for captured in read] == list(range(len(read)))
        assert len(read) >= summary.calls
    repository.call_summaries()
    assert list(repository.verify()) == []
    assert read_stats(engine).calls <= WRITERS * TURNS
    for _ in write_sessions(engine, chosen_sessions(engine), path):
        pass
    assert not survey(engine, path).new


def read_until_told(url: str, path: Path) -> None:
    """In a process of its own: says when it begins, reads until its input ends, says how often it read everything."""
    reading, done = open_database(url), threading.Event()

    def wait() -> None:
        sys.stdin.read()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    rounds = 0
    print("reading", flush=True)
    while not done.is_set():
        scan(reading, path)
        rounds += 1
    print(rounds, flush=True)


PROGRAM = "import sys; from pathlib import Path; from tests.store.test_readers import read_until_told as read; "
READ = [sys.executable, "-c", PROGRAM + "read(sys.argv[1], Path(sys.argv[2]))"]


async def test_sixty_four_writers_and_a_process_that_reads_everything(url: str, engine: Engine, tmp_path: Path) -> None:
    writer = Writer(engine)

    async def write(number: int) -> None:
        for ordinal in range(TURNS):
            await writer.write(turn(f"s{number}", ordinal), SECONDS)

    command, pipe = [*READ, url, str(tmp_path / "all.polar")], subprocess.PIPE
    reader = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    try:
        async with asyncio.timeout(SECONDS):
            assert reader.stdout is not None
            assert await reader.stdout.readline() == b"reading\n"
            async with asyncio.TaskGroup() as group:
                for number in range(WRITERS):
                    group.create_task(write(number))
            rounds, _ = await reader.communicate(b"")
    finally:
        if reader.returncode is None:
            reader.kill()
    writer.close()
    assert reader.returncode == 0
    assert int(rounds) > 0
    assert (writer.failed, writer.trouble) == (0, None)
    scan(engine, tmp_path / "all.polar")
    assert read_stats(engine).calls == WRITERS * TURNS


def test_a_reader_in_the_middle_of_its_work_sees_one_moment(url: str, engine: Engine) -> None:
    """However long it takes, sixty-four threads commit meanwhile."""
    reading, writer = open_database(url), Writer(engine)
    count = select(func.count()).select_from(calls)
    writer.submit(turn("first", 0)).result(SECONDS)
    with reading.begin() as connection:
        assert connection.execute(count).scalar_one() == 1
        with ThreadPoolExecutor(WRITERS) as pool:
            committed = pool.map(lambda number: writer.submit(turn(f"s{number}", 0)).result(SECONDS), range(WRITERS))
            assert len(list(committed)) == WRITERS
        assert connection.execute(count).scalar_one() == 1
    with reading.begin() as connection:
        assert connection.execute(count).scalar_one() == 1 + WRITERS
    writer.close()
    reading.dispose()
