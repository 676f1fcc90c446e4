"""A store with one of everything, and all that a store holds as plain values, whichever way it is laid out."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, select

from polarproxy.model import (
    CallKind,
    CallStatus,
    Caveat,
    ComponentKind,
    FinishReason,
    Label,
    Logprobs,
    Loss,
    Reward,
    RewardComponent,
    SessionStatus,
    TokenSource,
    TurnReward,
    Usage,
)
from polarproxy.store import codec
from polarproxy.store.bodies import BodyReader
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.repository import Repository
from polarproxy.store.responses import StoredResponse
from polarproxy.store.schema import DELIVERED, bodies, calls, metadata
from polarproxy.store.tokens import PromptReader
from polarproxy.store.writer import Writer
from tests.store.samples import NOW, a_call, a_completion, a_session, new_call

SECONDS = 30
SYSTEM = tuple(range(1000, 1200))
"""A prompt that many sessions begin with."""
SESSIONS = ("first", "second", "third", "odd", "empty")
_LAYOUT = ("base_call_id", "base_choice", "base_length", "prompt_suffix", "fact_id")
_RENAMED = {"reward_id": "reward"}


def body(turn: int, who: str) -> bytes:
    """A request that repeats the one of the turn before."""
    history = "".join(f'{{"role":"user","content":"turn {n} of {who}, word by word"}},' for n in range(8 + turn))
    return f'{{"model":"m","messages":[{history}null]}}'.encode()


def turn(session: str, number: int, days_ago: float = 0, **fields: Any) -> NewCall:
    """One of a conversation that begins as that of every other session."""
    prompt = [*SYSTEM, *(len(session) * 1000 + n for n in range(10 * number))]
    call = a_call(f"{session}-{number}", number, prompt, [number, number + 1, 7], session_id=session)
    known: dict[str, Any] = {"request_body": body(number, session), "arrived_at": NOW - timedelta(days=days_ago)}
    return new_call(replace(call, **(known | fields)), t7=b"\xff ")


def converse(engine: Engine, ages: Mapping[str, float], turns: int = 3, padding: int = 0, **fields: Any) -> None:
    """Sessions with some turns, of these ages in days, recorded by one proxy, so that later ones build on earlier ones.

    All calls are delivered; `padding` bytes of each body are of no use to anybody.
    """
    repository, writer = Repository(engine), Writer(engine)
    for session, days in ages.items():
        repository.add_session(a_session(session, created_at=NOW - timedelta(days=days), **fields))
        for number in range(turns):
            new = turn(session, number, days, request_body=body(number, session) + b" " * padding)
            writer.submit(new).result(SECONDS)
            writer.submit(Fact(new.call.call_id, NOW, DELIVERED, "yes")).result(SECONDS)
    writer.close()


def fill(engine: Engine) -> None:
    """Sessions that build on each other, failures, side calls, several choices, stored responses, rewards with a history."""
    repository, writer = Repository(engine), Writer(engine)
    for name in SESSIONS:
        group = "g" if name in ("first", "second") else None
        made = a_session(name, group_id=group, task_id="t", harness="h", model="m", metadata=(("k", "v\x1a"),))
        repository.add_session(made)
    # One writer, so that later sessions build on the beginning of the first one.
    for name in ("first", "second", "third"):
        for number in range(4):
            writer.submit(turn(name, number)).result(SECONDS)
    for new in _odd():
        writer.submit(new).result(SECONDS)
    facts = [("first-0", DELIVERED, "yes"), ("first-2", "colour", "blue\x1a")]
    for call_id, name, value in facts:
        writer.submit(Fact(call_id, NOW, name, value)).result(SECONDS)
    writer.close()
    repository.add_label("first-1", Label(CallKind.TITLE, "ann", NOW, "a guess"))
    repository.add_label("first-1", Label(None, "b\x1ab", NOW))
    repository.add_reward("first", Reward(0.5, (RewardComponent("b", 0.25), RewardComponent("a", 1.0))))
    repository.add_reward("first", Reward(1.0))
    watched = (RewardComponent("tests", -1.5), RewardComponent("\x1alength", 7.0, ComponentKind.METRIC))
    turns = (TurnReward(0.25, turn=1), TurnReward(-1.0, call_id="second-0"))
    repository.add_reward("second", Reward(0.0, watched, turns, spec="5" * 32))
    repository.set_status("second", SessionStatus.TIMEOUT)


def _odd() -> list[NewCall]:
    """Calls that have what others have not."""
    failed = a_call(
        "odd-0",
        0,
        None,
        session_id="odd",
        status=CallStatus.ENGINE_ERROR,
        error="it \u2603 broke\x00 \ud83d",
        request_body=b"",
    )
    several = a_call(
        "odd-1",
        1,
        (1, 2),
        session_id="odd",
        completions=(
            a_completion((5, 6), 0, logprobs=Logprobs.of([float("nan"), float("-inf")])),
            a_completion((), 2, logprobs=None, finish_reason=None),
            a_completion((2**31 - 1,), 1, finish_reason=FinishReason.LENGTH, stop_reason="</s>"),
        ),
        usage=Usage(2, 4, None, 1),
        policy_version_min=3,
        policy_version_max=4,
        caveat=Caveat.MEDIA,
        losses=(Loss("tools[0]", "why"),),
        headers=(("x-a", "b"),),
        token_source=TokenSource.ENGINE,
    )
    answered = a_call("odd-2", 2, (1, 2), (3,), session_id="odd", request_body=body(1, "first"))
    shown = b'{"image":"' + b64encode(bytes(range(256)) * 4) + b'"}'
    continued = a_call("odd-3", 3, (1, 2, 3), (4,), session_id="odd", request_body=shown)
    first = StoredResponse("resp_1", None, b'[{"role":"user"}]', b'{"id":"resp_1"}')
    second = StoredResponse("resp_2", "resp_1", b"[]", b'{"id":"resp_2"}')
    session = a_session("odd")
    return [
        NewCall(failed, session, {}),
        NewCall(several, session, {5: b"f", 6: b"\xf0\x9f"}),
        NewCall(answered, session, {}, first),
        NewCall(continued, session, {}, second),
    ]


def contents(engine: Engine) -> dict[str, list[Any]]:
    """All rows of all tables; prompts and bodies in full instead of how they are laid out, keys by their order."""
    found: dict[str, list[Any]] = {}
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            rows = connection.execute(select(table).order_by(*table.primary_key)).mappings().all()
            found[table.name] = [
                {_RENAMED.get(name, name): value for name, value in row.items() if name not in _LAYOUT} for row in rows
            ]
        prompts, requests = PromptReader(connection), BodyReader(connection)
        stored = connection.execute(select(calls).order_by(calls.c.call_id)).mappings().all()
        for shown, row in zip(found["calls"], stored, strict=True):
            prompt = prompts.prompt(row)
            shown["prompt"] = None if prompt is None else list(prompt)
        digests = connection.execute(select(bodies.c.digest).order_by(bodies.c.digest)).scalars().all()
        found["bodies"] = [requests.body(digest) for digest in digests]
    for row in found["completions"]:
        row["token_ids"] = list(codec.decode_ids(row["token_ids"]))
    for row in found["responses"]:
        row |= {name: codec.decompress(row[name]) for name in ("input", "reply")}
    # Facts and rewards keep their order within a call or session, and nothing else.
    parts = [(row.pop("reward"), row) for name in ("reward_components", "turn_rewards") for row in found.pop(name)]
    for row in found["rewards"]:
        number = row.pop("reward")
        row["parts"] = [part for owner, part in parts if owner == number]
    found["call_facts"].sort(key=lambda row: row["call_id"])
    found["rewards"].sort(key=lambda row: row["session_id"])
    return found
