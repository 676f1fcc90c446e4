"""A database is brought to the current schema, or refused and left exactly as it was."""

import sqlite3
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, UniqueConstraint, func, inspect, select

from polarproxy.errors import WrongDatabase
from polarproxy.model import Shape
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.migrate import downgrade, upgrade
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import current, head, known, migrations_folder, require_current
from polarproxy.store.schema import bodies, calls, completions, metadata
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, new_call


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def opened(file: Path) -> Engine:
    return open_database(f"sqlite:///{file}", create=True)


def test_up_down_and_up_again(engine: Engine) -> None:
    assert tables(engine) == {*metadata.tables, "alembic_version"}
    downgrade(engine, "base")
    assert tables(engine) == {"alembic_version"}
    assert current(engine) is None
    assert upgrade(engine) == head() == current(engine)
    assert tables(engine) == {*metadata.tables, "alembic_version"}


def test_the_migrations_make_the_tables_that_the_code_uses(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_the_files_are_the_revisions_that_alembic_knows() -> None:
    scripts = ScriptDirectory(str(migrations_folder()))
    assert scripts.get_heads() == [head()]
    assert {script.revision for script in scripts.walk_revisions()} == known()


def test_what_refers_to_a_row_is_found_by_an_index() -> None:
    """Else each row that is deleted costs the reading of a whole table."""
    for table in metadata.sorted_tables:
        columns = [next(iter(table.primary_key)), *(next(iter(index.columns)) for index in table.indexes)]
        columns += [next(iter(unique.columns)) for unique in table.constraints if isinstance(unique, UniqueConstraint)]
        assert {key.parent.name for key in table.foreign_keys} <= {column.name for column in columns}, table.name


def test_an_upgrade_keeps_what_is_there(engine: Engine) -> None:
    writer = Writer(engine)
    writer.submit(new_call(a_call())).result(20)
    writer.close()
    assert upgrade(engine) == head()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT call_id FROM calls").scalars().all() == ["c1"]


def test_calls_of_the_first_schema_asked_for_no_exact_prompt(engine: Engine) -> None:
    writer = Writer(engine)
    writer.submit(new_call(a_call("c1", 0, (1,), (2,)))).result(20)
    writer.close()
    downgrade(engine, "0001")
    upgrade(engine)
    repository = Repository(engine)
    assert repository.call("c1").call == a_call("c1", 0, (1,), (2,))
    assert repository.session("s1").prompts is None
    assert list(repository.verify()) == []


def test_calls_of_a_version_without_shapes_have_none(engine: Engine) -> None:
    made = a_call(shape=Shape(2, ("bash",), False, "0" * 16))
    writer = Writer(engine)
    writer.submit(new_call(made)).result(20)
    writer.close()
    downgrade(engine, "0005")
    upgrade(engine)
    assert Repository(engine).call("c1").call == replace(made, shape=None)


def test_an_empty_file_is_an_empty_database(file: Path) -> None:
    file.touch()
    engine = opened(file)
    assert current(engine) is None
    with pytest.raises(WrongDatabase, match="polarproxy db upgrade"):
        require_current(engine)
    assert upgrade(engine) == head()
    require_current(engine)
    engine.dispose()


def refused(file: Path, message: str) -> None:
    """Both ways to open it refuse, and not a byte changes."""
    before = file.read_bytes()
    for use in (upgrade, require_current):
        engine = opened(file)
        with pytest.raises(WrongDatabase, match=message):
            use(engine)
        engine.dispose()
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_somebody_elses_database_is_not_touched(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE holiday_photos (name TEXT)")
    connection.close()
    refused(file, "holiday_photos")


def test_a_file_that_is_no_database_is_not_touched(file: Path) -> None:
    file.write_bytes(b"Dear diary, " * 400)
    refused(file, "cannot be read as a database")


def test_a_newer_schema_is_not_touched(file: Path) -> None:
    engine = opened(file)
    upgrade(engine)
    engine.dispose()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    refused(file, "9999")


def test_two_processes_may_start_at_once(empty: str) -> None:
    """All but one wait, and find nothing left to do."""
    engines = [open_database(empty, create=True) for _ in range(4)]
    with ThreadPoolExecutor(len(engines)) as pool:
        assert list(pool.map(upgrade, engines)) == [head()] * len(engines)
    for engine in engines:
        require_current(engine)
        engine.dispose()


def test_a_database_with_our_mark_and_without_our_tables_is_refused(engine: Engine) -> None:
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("DROP TABLE token_texts")
    for use in (upgrade, require_current):
        with pytest.raises(WrongDatabase, match="token_texts"):
            use(engine)


def test_alembics_own_check_finds_nothing_to_migrate(engine: Engine) -> None:
    """As `alembic check` does: the tables of the code and those that the migrations made."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.check(config)


def test_an_earlier_program_reads_what_this_one_wrote(engine: Engine) -> None:
    """Of packed ids and of bodies that take their end from their base, images in it and all: written anew on the way down."""
    image = b64encode(bytes(range(256)) * 40)
    end = b'],"tools":[' + b'{"name":"bash"},' * 9 + b'"%b\0"]}' % image
    made = [
        a_call(
            f"c{number}",
            number,
            [*range(40), *range(200_000, 200_000 + number)],
            [number, 2**18 - 1, 2**18 + number % 2],
            request_body=b'{"messages":[' + b"as before, " * 30 + b'{"turn":1},' * number + end,
        )
        for number in range(5)
    ]
    writer = Writer(engine)
    for call in made:
        writer.submit(new_call(call)).result(20)
    writer.close()
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).where(bodies.c.base_tail > 0)).scalar_one() == 4
        packed = connection.execute(select(calls.c.prompt_suffix, completions.c.token_ids).join(completions)).all()
    assert {value[:1] for row in packed for value in row} == {b"\x12", b"\x28"}
    downgrade(engine, "0009")
    with engine.connect() as connection:
        query = "SELECT prompt_suffix, token_ids FROM calls JOIN completions USING (call_id)"
        assert {bytes(value[:1]) for row in connection.exec_driver_sql(query) for value in row} == {b"\x28"}
    upgrade(engine)
    assert [captured.call for captured in Repository(engine).calls("s1")] == made
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).where(bodies.c.base_tail > 0)).scalar_one() == 0
