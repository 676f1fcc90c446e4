"""`polarproxy db`: the database itself."""

from __future__ import annotations

import typer

from polarproxy.cli.archives import export_archive, import_archive, migrate
from polarproxy.cli.opening import Db, Json, database_url, open_repository
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.spool import app as spool
from polarproxy.cli.upkeep import prune, stats
from polarproxy.model.plurals import counted
from polarproxy.store.database import open_database
from polarproxy.store.migrate import upgrade as upgrade_database
from polarproxy.store.revisions import current as current_revision
from polarproxy.store.revisions import head

app = typer.Typer(no_args_is_help=True, help="The database: schema, integrity, size, and copies.")
app.command()(stats)
app.command()(prune)
app.command("export")(export_archive)
app.command("import")(import_archive)
app.command()(migrate)
app.add_typer(spool, name="spool")


@app.command()
def upgrade(db: Db = None, as_json: Json = False) -> None:
    """Make the database, or bring it to this version's schema."""
    engine = open_database(database_url(db), create=True)
    name = engine.url.render_as_string(hide_password=True)
    try:
        schema = upgrade_database(engine)
    finally:
        engine.dispose()
    if as_json:
        print_json({"database": name, "schema": schema})
    else:
        console.print(f"{name} has schema {schema}", markup=False)


@app.command()
def current(db: Db = None, as_json: Json = False) -> None:
    """Print the schema that the database has. Exit code 1 when it is not the one this version needs."""
    engine = open_database(database_url(db))
    try:
        found = current_revision(engine)
    finally:
        engine.dispose()
    if as_json:
        print_json({"schema": found, "needed": head()})
    else:
        console.print(f"schema {found or 'none'}, this polarproxy needs {head()}")
    if found != head():
        raise typer.Exit(1)


@app.command()
def verify(db: Db = None, as_json: Json = False) -> None:
    """Re-derive every digest and length from what is stored. Exit code 1 when something does not match."""
    with open_repository(db) as repository:
        sessions = len(repository.session_ids())
        damages = list(repository.verify())
    if as_json:
        print_json({"sessions": sessions, "damaged": [{"where": d.where, "what": d.what} for d in damages]})
    elif damages:
        print_table(
            f"{counted(len(damages), 'damaged record')}", ("where", "what"), [(d.where, d.what) for d in damages]
        )
    else:
        console.print(f"{counted(sessions, 'session')} verified, nothing is damaged")
    if damages:
        raise typer.Exit(1)
