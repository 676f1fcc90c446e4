"""Many writers and a reader at once: nobody is told that the database is locked, and nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

from polarproxy.model import Reward, SessionStatus
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, a_session, new_call

SECONDS = 60
WRITERS, THREADS, CALLS = 4, 24, 20


def test_threads_processes_and_a_reader_get_along(url: str, repository: Repository) -> None:
    """Each writer has an engine of its own, as another process would."""
    engines = [open_database(url) for _ in range(WRITERS)]
    writers = [Writer(own) for own in engines]
    done = threading.Event()

    def write(number: int) -> None:
        session, writer = f"s{number}", writers[number % WRITERS]
        repository.add_session(a_session(session))
        calls = [a_call(f"{session}-{n}", n, range(50 + n), [n], session_id=session) for n in range(CALLS)]
        for future in [writer.submit(new_call(call)) for call in calls]:
            future.result(SECONDS)
        repository.add_reward(session, Reward(float(number)))
        repository.set_status(session, SessionStatus.COMPLETED)

    def read() -> int:
        rounds = 0
        while not done.is_set():
            for summary in repository.sessions():
                calls = repository.calls(summary.session.session_id)
                assert [captured.call.ordinal for captured in calls] == list(range(len(calls)))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(THREADS + 1) as pool:
        reader = pool.submit(read)
        try:
            for future in [pool.submit(write, number) for number in range(THREADS)]:
                future.result(SECONDS)
        finally:
            done.set()
        assert reader.result(SECONDS) > 0
    for writer, own in zip(writers, engines, strict=True):
        writer.close()
        own.dispose()
    for summary in repository.sessions():
        number = int(summary.session.session_id[1:])
        assert summary.calls == CALLS
        assert summary.session.reward == Reward(float(number))
    assert list(repository.verify()) == []
