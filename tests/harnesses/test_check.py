"""Every recipe's own check, with the real program in the safest runtime; what cannot be installed here says why."""

from pathlib import Path

import pytest

from polarproxy.cli.harness_runs import check
from polarproxy.errors import HarnessNotInstalled
from polarproxy.rollout.installing import install
from polarproxy.rollout.recipes import find_harnesses
from polarproxy.rollout.runtimes.opening import best_runtime
from polarproxy.rollout.runtimes.protocol import Limits
from tests.harnesses.process import FOLDER, folder_of_programs

pytestmark = pytest.mark.harness


@pytest.mark.parametrize("name", find_harnesses())
async def test_the_recipe_works(name: str) -> None:
    harness, folder = find_harnesses()[name], folder_of_programs()
    if folder is None:
        if harness.recipe.install is not None:
            pytest.skip(f"needs the coding agents: export $(.ci/setup-harnesses) sets {FOLDER}")
        folder = Path("unused")
    if name == "calculator":
        pytest.importorskip("openai", reason="the calculator agent needs openai: pip install 'polarproxy[demo]'")
    try:
        installed = install(harness, folder)
    except HarnessNotInstalled as error:
        pytest.skip(str(error))
    checked = await check(installed, best_runtime(), 240, Limits())
    assert checked.problems == (), checked.done.outcome
    assert checked.trained > 0
    assert checked.kinds["main"] >= len(harness.recipe.check.turns if harness.recipe.check else ())
    assert set(checked.left_out) <= {"side_call"}
