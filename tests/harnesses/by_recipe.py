"""A coding agent as its recipe has it, for a stage."""

from collections.abc import Callable, Mapping
from typing import Literal

from polarproxy.model.harness import Start
from polarproxy.rollout.filling import Values
from polarproxy.rollout.recipes import find_harnesses
from tests.harnesses.stage import MODEL, Access, Harness

Change = Callable[[str], str]


def start_of(name: str) -> Start:
    start = find_harnesses()[name].recipe.start
    assert start is not None
    return start


def options_of(name: str) -> list[str]:
    """Its command line without what stands for the prompt: `claude --dangerously-skip-permissions`."""
    command = list(start_of(name).command)
    assert command.pop() == "{instruction}"
    return command[:-1] if command[-1] == "-p" else command


def by_recipe(
    name: str,
    named_by: Literal["key", "path"] = "key",
    *,
    context: int = 131_072,
    environment: Mapping[str, str] | None = None,
    files: Change = lambda text: text,
) -> Harness:
    """`environment` is added to the recipe's; `files` changes the text of each of its files before it is filled in."""
    start, recipe = start_of(name), find_harnesses()[name].recipe
    assert recipe.dialect is not None

    def values(access: Access | None = None, prompt: str = "") -> Values:
        known = access or Access("", "")
        return Values(
            instruction=prompt,
            base_url=known.url,
            api_key=known.key,
            model=MODEL,
            session_id="unused",
            context=context,
            compact_at=context * 4 // 5,
            output=8_192,
            python="unused",
            folder="unused",
            home="../home",
            work=".",
        )

    def resume(prompt: str) -> list[str]:
        return [values(prompt=prompt).fill(part) for part in start.resume]

    def surroundings(access: Access) -> dict[str, str]:
        known = {key: values(access).fill(text) for key, text in start.environment.items()}
        return known | dict(environment or {})

    return Harness(
        dialect=recipe.dialect,
        named_by=named_by,
        command=lambda prompt: [values(prompt=prompt).fill(part) for part in start.command],
        resume=resume if start.resume else None,
        environment=surroundings,
        files=lambda access: {path: values(access).fill(files(text)) for path, text in start.files.items()},
    )
