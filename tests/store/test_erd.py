"""The diagram in the documentation is drawn from the tables."""

import re
from collections.abc import Iterator
from pathlib import Path

from polarproxy.store.schema import calls, metadata

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "store.md"
NO_REFERENCE = {(calls.name, calls.name): "base_call_id (storage only)"}
"""What refers to another row without the database knowing of it."""


def diagram() -> Iterator[str]:
    """A line for every reference, and one for every table that has none."""
    drawn: set[str] = set()
    for table in metadata.sorted_tables:
        for key in sorted(table.foreign_keys, key=lambda key: str(key.parent.name)):
            end = "|o" if key.parent.nullable else "||"
            yield f'{key.column.table.name} {end}--o{{ {table.name} : "{key.parent.name}"'
            drawn |= {table.name, key.column.table.name}
    for (one, many), what in NO_REFERENCE.items():
        yield f'{one} |o--o{{ {many} : "{what}"'
    yield from sorted(metadata.tables.keys() - drawn)


def test_the_diagram_shows_every_table_and_reference() -> None:
    found = re.search(r"```mermaid\nerDiagram\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    lines = [line.strip() for line in found[1].strip().splitlines()]
    assert lines == list(diagram()), "the diagram should be:\n  " + "\n  ".join(diagram())


def test_the_page_says_what_a_row_of_every_table_is() -> None:
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", PAGE.read_text(), re.MULTILINE))))
    assert metadata.tables.keys() <= named
