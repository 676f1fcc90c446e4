"""`nova-rft`: what Amazon Nova's reinforcement fine-tuning reads, and what its reward handlers read and write.

Sources: Amazon Nova user guide, "Preparing data for RFT on Amazon Nova 2" (`messages`, `reference_answer`, `tools`, `id`), and
"RFT evaluation" (samples with `id`, `messages`, `metadata`; results with `id`, `aggregate_reward_score`, `metrics_list`). They
hold text only.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.credit.given import GivenMetric, GivenTurn
from polarproxy.errors import UNREADABLE
from polarproxy.export.records import write_lines
from polarproxy.export.texts.choosing import LINES, best, cached, groups
from polarproxy.export.texts.runs import Run, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from polarproxy.export.format import Context, Taken
    from polarproxy.export.texts.chat import Json
    from polarproxy.model import Session

ROLLOUTS, PROMPTS, REWARDS = "rollouts", "prompts", "rewards"
FORMS = (ROLLOUTS, PROMPTS, REWARDS)
SAMPLE_ID = "sample_id"
"""Metadata of a session: the name that somebody else has for it."""
_ANSWERS = ("reference_answer", "answer")
"""Metadata of a session that says what would be right."""


class Example(msgspec.Struct, omit_defaults=True):
    """A prompt of a dataset, or a rollout for a reward handler. `reference_answer` None: nobody said what would be right."""

    id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    reference_answer: Any = None
    metadata: dict[str, Any] = {}


class Scored(msgspec.Struct, omit_defaults=True):
    """What a reward handler answers for one sample."""

    id: str
    aggregate_reward_score: float
    metrics_list: list[GivenMetric]
    turn_rewards: list[GivenTurn] = []
    """What single turns were worth; not of Amazon's form, and only there when somebody said it."""


def write_nova(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """The lines of one of the forms."""
    write_lines(path, _scores(sessions, context) if context.form == REWARDS else _examples(sessions, context))


def sample_id(session: Session) -> str:
    """The name by which `polarproxy reward import` finds the session again."""
    return dict(session.metadata).get(SAMPLE_ID, session.session_id)


def _examples(sessions: Iterable[Taken], context: Context) -> Iterator[Example]:
    told, reading = context.account.texts, cached(context.reading)
    seen: set[bytes] = set()
    ids: Counter[str] = Counter()
    for group in groups(sessions):
        for taken in best(group, context.texts.best_of, context.account):
            run = run_of(taken, reading)
            if not isinstance(run, Run):
                told[f"sessions without a text: {run.value}"] += 1
                continue
            made = _example(run, context)
            if context.form == PROMPTS:
                said = blake2b(msgspec.json.encode((made.messages, made.tools)), digest_size=16).digest()
                if said in seen:
                    told["prompts written already"] += 1
                    continue
                seen.add(said)
                ids[made.id] += 1
                if ids[made.id] > 1:
                    made.id = f"{made.id}-{ids[made.id]}"
            if made.reference_answer is None:
                told["lines without a reference answer"] += 1
            told[LINES] += 1
            yield made


def _example(run: Run, context: Context) -> Example:
    session, prompts = run.taken.session, context.form == PROMPTS
    messages = run.opening if prompts else [*run.opening, *run.rest]
    metadata: Json = {"session_id": session.session_id} | dict(session.metadata)
    if session.task_id is not None:
        metadata["task_id"] = session.task_id
    if session.group_id is not None:
        metadata["group_id"] = session.group_id
    return Example(
        id=(session.task_id or session.session_id) if prompts else sample_id(session),
        messages=[_plain(message, context) for message in messages],
        tools=run.tools,
        reference_answer=_reference(session),
        metadata=metadata,
    )


def _plain(message: Json, context: Context) -> Json:
    """A message of text; reasoning and weights have no place in this form."""
    kept = {name: value for name, value in message.items() if name not in ("reasoning_content", "weight")}
    if "reasoning_content" in message:
        context.account.texts["reasoning left out"] += 1
    if isinstance(kept.get("content"), list):
        texts = [part["text"] for part in kept["content"] if part.get("type") == "text"]
        context.account.texts["media left out"] += len(kept["content"]) - len(texts)
        kept["content"] = "\n".join(texts)
    return kept


def _reference(session: Session) -> Any:
    """An object where the metadata is one as JSON, else the text."""
    metadata = dict(session.metadata)
    text = next((metadata[name] for name in _ANSWERS if name in metadata), None)
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text.encode())
    except UNREADABLE:
        return text
    return value if isinstance(value, dict | list) else text


def _scores(sessions: Iterable[Taken], context: Context) -> Iterator[Scored]:
    """The rewards of all sessions that have one, also of those that train nothing."""
    for taken in sessions:
        session = taken.session
        if session.reward is None:
            context.account.texts["sessions without a reward"] += 1
            continue
        context.account.texts[LINES] += 1
        yield Scored(
            id=sample_id(session),
            aggregate_reward_score=session.reward.value,
            metrics_list=[GivenMetric(part.name, part.value, part.kind) for part in session.reward.components],
            turn_rewards=[GivenTurn(one.value, one.call_id, one.turn) for one in session.reward.turns],
        )
