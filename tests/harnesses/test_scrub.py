"""What scrubbing keeps and what it replaces; and that the fixtures hold nothing that others wrote or that tells a machine."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from polarproxy.wire.neutral.seal import seal
from tests.harnesses.kept import DROPPED, HEADERS, KEPT
from tests.harnesses.recorded import FOLDER, NAMES, recorded
from tests.harnesses.scenes import OWN, THOUGHT
from tests.harnesses.scrub import Scrubber, is_id, is_key, is_machine_text, is_ours, parsed, sealed, tokens

THREAD, OTHER = "01a2b3c4-d5e6-7f80-91a2-b3c4d5e6f708", "9f8e7d6c-5b4a-4392-8170-6f5e4d3c2b1a"
PROMPT = "You help with a repository. Never guess what a file holds; look into it, and say so when it is not there."
NOTE = f"The agent {THREAD} has ended."


def scrubber(*seen: Any) -> Scrubber:
    made = Scrubber(frozenset({THOUGHT}))
    made.learn(list(seen))
    return made


def test_words_of_the_apis_keys_and_our_own_texts_stay() -> None:
    body = {
        "role": "user",
        "content": [{"type": "text", "text": THOUGHT}],
        "max_tokens": 5,
        "stream": True,
        "stop": None,
    }
    assert scrubber().value(body) == body
    schema = {"type": "object", "properties": {"cell_id": {"type": "string"}}, "required": ["cell_id"]}
    assert scrubber().value(schema) == schema


def test_other_texts_are_replaced_the_same_everywhere_and_no_two_by_one() -> None:
    scrub = scrubber()
    first, again, other = scrub.text(PROMPT), scrub.value({"text": PROMPT})["text"], scrub.text(PROMPT + "\n")
    assert first == again != other
    assert is_ours(first)
    assert is_ours(other)
    assert "repository" not in first
    assert not is_ours(PROMPT)
    assert not is_ours(f"Text 1: {PROMPT}")
    assert len({scrub.text(f"word{number}") for number in range(100)}) == 100


def test_ids_keep_their_shape_and_what_they_name() -> None:
    headers = {"session-id": THREAD, "x-window": f"{THREAD}:2", "x-metadata": json.dumps({"session_id": THREAD})}
    scrub = scrubber(headers, {"call_id": f"msg_{OTHER}"}, NOTE)
    made = scrub.text(THREAD)
    assert made != THREAD
    assert re.fullmatch(r"[0-9a-f]{8}-0000-7000-8000-[0-9a-f]{12}", made)
    scrubbed = scrub.value(headers)
    assert scrubbed["x-window"] == f"{made}:2"
    assert json.loads(scrubbed["x-metadata"]) == {"session_id": made}
    assert scrub.text(NOTE).endswith(f" [{made}]")
    assert scrub.text(f"msg_{OTHER}").startswith("msg_")
    assert len(scrub.text("ses_1a2B3c4D5e6F7g8H9i0J1k2L3m")) == 30
    assert scrub.value({THREAD: 1, "/home/somebody/project": 2}) == {made: 1, "/home/user/name_2": 2}


@pytest.mark.parametrize("written", ['{"path": "a b c"}', '{"path":"a b c"}', '{\n  "path": "a b c"\n}'])
def test_json_in_a_string_keeps_its_spacing(written: str) -> None:
    assert re.sub("Text [0-9]+.", "a b c", scrubber().text(written)) == written


def test_a_seal_stays_where_it_seals_our_own_text() -> None:
    assert scrubber().text(seal(THOUGHT)) == seal(THOUGHT)
    assert sealed(scrubber().text(seal(PROMPT))) is None


def test_times_and_machines_are_replaced() -> None:
    scrub = scrubber()
    assert scrub.value({"at": 1_796_038_391_906}) == {"at": 1_700_000_000_001}
    agent = scrub.header("User-Agent", "codex_exec/1.2 (Debian 12.0.0; x86_64) xterm (codex_exec; 1.2)")
    assert agent == "codex_exec/1.2 (Linux 1.0; x86_64) xterm (codex_exec; 1.2)"


_MADE_ID = re.compile(
    r"[0-9a-f]{8}-0000-[0-9a-f]000-8000-0{8}[0-9a-f]{4}|17000000[0-9]{5}|[0-9a-zA-Z]0{6,}[0-9a-f]{1,4}", re.ASCII
)
_HEADER = re.compile(r"[\w.,;:=()*+/ -]{1,400}", re.ASCII)


def texts(value: Any, member: str = "") -> Iterator[tuple[str, str]]:
    """Every string with the member that it is a value of, also inside JSON in strings; keys have none."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield "", name
            yield from texts(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, member)
    elif isinstance(value, str):
        inner = None if value in OWN else parsed(value)
        if inner is None:
            yield member, value
        else:
            yield from texts(inner, member)


def known(member: str, text: str) -> bool:
    """Whether it may stand in a fixture."""
    if not all(_MADE_ID.fullmatch(token) for token in tokens(text)) and sealed(text) not in OWN:
        return False
    if text in KEPT or text in OWN or is_ours(text) or is_machine_text(text) or is_id(text):
        return True
    return (member in ("", "required", "propertyOrdering") and is_key(text)) or sealed(text) in OWN


def test_the_check_of_fixtures_sees_what_it_should() -> None:
    for text in (PROMPT, "Hi there.", NOTE, THREAD, "/home/somebody", f"Text 1: A file. [{PROMPT}]", seal(PROMPT)):
        assert not known("text", text), text
    assert not known("", "/home/somebody/project")
    assert list(texts({"a": json.dumps({"b": [PROMPT]})})) == [("", "a"), ("", "b"), ("b", PROMPT)]


@pytest.mark.parametrize("harness", NAMES)
def test_a_fixture_holds_nothing_that_others_wrote(harness: str) -> None:
    requests = recorded(harness)
    assert len({str(request) for request in requests}) == len(requests) > 5
    for request in requests:
        strange = [text for member, text in texts([request.body, request.reply], "body") if not known(member, text)]
        assert not strange, (str(request), strange[:5])
        for name, value in request.headers:
            assert name.lower() not in DROPPED
            fine = _HEADER.fullmatch(value) and " /" not in value if name.lower() in HEADERS else None
            fine = all(known(member, text) for member, text in texts(value, name)) if fine is None else fine
            assert fine, (str(request), name, value)
        assert re.fullmatch(r"(/[\w.:-]+)+(\?[\w=&]+)?", request.path), request


def test_the_fixtures_are_small() -> None:
    files = sorted(FOLDER.iterdir())
    # The archive is a session made of such requests, for the guide (`tests.harnesses.example`); the trees are what the
    # runs are rebuilt into.
    assert [file.name for file in files] == sorted(
        ["claude-code-session.polar", "trees.json", *(f"{name}.jsonl.zst" for name in NAMES)]
    )
    assert sum(file.stat().st_size for file in files) < 1_500_000
