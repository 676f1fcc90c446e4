"""What README and docs point to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def relative_links(text: str) -> list[str]:
    """The targets of a page's links that are files of this repository, without anchors."""
    targets = _LINK.findall(_FENCED.sub("", text))
    files = (target.partition("#")[0] for target in targets if not _SCHEME.match(target))
    return [file for file in files if file]


def test_links_are_found() -> None:
    text = "[a](b.md#c) [d](https://e/f) [g](#h) ![i](j/)\n```\n[k](l)\n```\n[m](../n.md)"
    assert relative_links(text) == ["b.md", "j/", "../n.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_something(page: Path) -> None:
    missing = [link for link in relative_links(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []
