"""Real tokenizers and chat templates, where `.ci/setup-tokenizers` provided them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engine.exact.families import FAMILIES
from tests.fakes.rendering.renderer import Templated

if TYPE_CHECKING:
    from tests.engine.exact.families import Family
    from tests.fakes.rendering.renderer import Renderer

FOLDER = "POLARPROXY_TEST_TOKENIZERS"


@cache
def load(name: str) -> Renderer:
    folder = Path(os.environ[FOLDER]) / name
    if name == "gptoss":
        harmony = pytest.importorskip(
            "tests.fakes.rendering.harmony", reason="needs openai-harmony: pip install -e '.[dev]'"
        )
        renderer: Renderer = harmony.Harmony(folder)
        return renderer
    return Templated.load(folder)


def renderer_of(name: str) -> Renderer:
    """A family's renderer; skips the test where it was not fetched."""
    if FOLDER not in os.environ:
        pytest.skip(f"needs tokenizers and chat templates: export $(.ci/setup-tokenizers) sets {FOLDER}")
    return load(name)


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    chosen: Family = request.param
    return chosen


@pytest.fixture
def renderer(family: Family) -> Renderer:
    return renderer_of(family.name)


@pytest.fixture
def qwen3() -> Renderer:
    return renderer_of("qwen3")
