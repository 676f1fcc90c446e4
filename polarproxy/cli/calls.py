"""`polarproxy calls`: single exchanges, down to the token."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from polarproxy.cli.conversation import conversation
from polarproxy.cli.label import label
from polarproxy.cli.opening import Db, Json, narrowed, open_repository
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import rebuilt
from polarproxy.cli.spelling import Tokenizer, marked, spell, spellings
from polarproxy.model import FallbackReason
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.model import Call, Logprobs, Prompting, TokenIds
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.kinds import Verdict

app = typer.Typer(no_args_is_help=True, help="Single exchanges with the model.")
app.command()(label)


@app.command("list")
def list_calls(
    session: Annotated[str | None, typer.Option(help="Only calls of this session.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List calls in order of arrival."""
    with open_repository(db) as repository, narrowed(as_json):
        if session is not None:
            repository.session(session)
        found = repository.call_summaries(session)
    if as_json:
        print_json([asdict(call) for call in found])
        return
    columns = ("call", "session", "#", "status", "model", "prompt", "sampled", "finish")
    rows = [
        (
            call.call_id,
            call.session_id,
            call.ordinal,
            call.status,
            call.served_model,
            call.prompt_tokens,
            call.completion_tokens,
            ", ".join(call.finish_reasons) or None,
        )
        for call in found
    ]
    print_table(f"{counted(len(found), 'call')}", columns, rows, spare=("model", "finish", "session"))


@app.command("show")
def show_call(
    call_id: str,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Every token of prompt and reply: id, logprob, loss mask, text.")
    ] = False,
    tokenizer: Tokenizer = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Show one call: what was asked, what was sampled, and which of it is trained (between « and »)."""
    with open_repository(db) as repository:
        captured = repository.call(call_id)
        call = captured.call
        whole = rebuilt(repository.session(call.session_id), repository.calls(call.session_id))
        texts = spellings(repository, [call], tokenizer)
    why, kind = _verdicts(whole.trajectory, call.call_id), whole.judged.verdicts[call.call_id]
    if as_json:
        print_json(_as_json(call, captured.delivered, why, texts) | {"kind": asdict(kind)})
        return
    _print_facts(call, captured.delivered, kind)
    for role, text in conversation(call):
        console.print(Text(f"{role}: ", style="bold") + Text(text, style="dim"))
    if tokens and call.prompt_token_ids is not None:
        _print_tokens("prompt", 0, call.prompt_token_ids, None, texts, trained=False)
    for completion in call.completions:
        verdict = why.get(completion.index, why.get(None, "trained"))
        is_trained = verdict == "trained"
        head = Text(f"assistant (choice {completion.index}, {verdict}): ", style="bold")
        console.print(head + marked(spell(completion.token_ids, texts), trained=is_trained))
        if tokens:
            start = len(call.prompt_token_ids or ())
            title = f"choice {completion.index}"
            _print_tokens(title, start, completion.token_ids, completion.logprobs, texts, trained=is_trained)


def _verdicts(trajectory: Trajectory, call_id: str) -> dict[int | None, str]:
    """For each choice that is not trained, the reason."""
    return {entry.choice: entry.reason.value for entry in trajectory.left_out if entry.call_id == call_id}


def _as_json(call: Call, delivered: bool, why: Mapping[int | None, str], texts: Mapping[int, bytes]) -> dict[str, Any]:
    prompt = call.prompt_token_ids
    return {
        "call_id": call.call_id,
        "session_id": call.session_id,
        "ordinal": call.ordinal,
        "arrived_at": call.arrived_at,
        "dialect": call.dialect,
        "path": call.path,
        "status": call.status,
        "http_status": call.http_status,
        "error": call.error,
        "delivered": delivered,
        "engine": call.engine,
        "upstream": call.upstream,
        "requested_model": call.requested_model,
        "served_model": call.served_model,
        "usage": call.usage and asdict(call.usage),
        "sampling": asdict(call.sampling),
        "headers": dict(call.headers),
        "prompting": call.prompting and asdict(call.prompting),
        "losses": [asdict(loss) for loss in call.losses],
        "policy_versions": [call.policy_version_min, call.policy_version_max],
        "prompt_token_ids": None if prompt is None else list(prompt),
        "completions": [
            {
                "index": completion.index,
                "token_ids": list(completion.token_ids),
                "logprobs": None if completion.logprobs is None else list(completion.logprobs),
                "finish_reason": completion.finish_reason,
                "stop_reason": completion.stop_reason,
                "text": spell(completion.token_ids, texts),
                "left_out": why.get(completion.index, why.get(None)),
            }
            for completion in call.completions
        ],
    }


def _print_facts(call: Call, delivered: bool, kind: Verdict) -> None:
    prompt, sampling = call.prompt_token_ids, call.sampling
    asked = (sampling.temperature, sampling.top_p, sampling.top_k)
    facts = [
        ("session", f"{call.session_id}, call {call.ordinal}"),
        ("status", call.status if call.error is None else f"{call.status}: {call.error}"),
        ("delivered", "yes" if delivered else "no"),
        ("kind", f"{kind.kind}: {kind.sentence} ({kind.source})"),
        ("dialect", f"{call.dialect}, {call.path}"),
        ("model", _model(call)),
        ("prompt tokens", None if prompt is None else len(prompt)),
        *([] if call.prompting is None else [("exact prompt", _prompting(call.prompting))]),
        ("sampled tokens", sum(len(completion.token_ids) for completion in call.completions)),
        ("finish", ", ".join(str(c.finish_reason) for c in call.completions) or None),
        ("temperature, top_p, top_k", ", ".join("-" if value is None else str(value) for value in asked)),
        ("logprobs", sampling.logprobs_mode),
    ]
    facts += [(f"lost: {loss.where}", loss.why) for loss in call.losses]
    print_table(f"call {call.call_id}", ("fact", "value"), facts)


def _prompting(prompting: Prompting) -> str:
    continued, outcome = prompting.continued, str(prompting.outcome)
    if continued is not None:
        outcome += f": {continued.length} recorded tokens, up to choice {continued.choice} of {continued.call_id}"
    if prompting.reason is None:
        return outcome
    known = next((reason.sentence for reason in FallbackReason if reason == prompting.reason), prompting.reason)
    return f"{outcome}; {known}" + ("" if prompting.detail is None else f" ({prompting.detail})")


def _model(call: Call) -> str | None:
    if call.requested_model in (None, call.served_model):
        return call.served_model
    return f"{call.served_model} (asked for as {call.requested_model})"


def _print_tokens(
    title: str, start: int, ids: TokenIds, logprobs: Logprobs | None, texts: Mapping[int, bytes], *, trained: bool
) -> None:
    """A line for each token. Not a table: a prompt may have a hundred thousand."""
    values = list(logprobs) if logprobs is not None else []
    lines = [f"{title}\nposition       id    logprob  loss_mask  text"]
    for place, token in enumerate(ids):
        value = f"{values[place]:.4f}" if place < len(values) else "-"
        lines.append(f"{start + place:>8} {token:>8} {value:>10} {int(trained):>10}  {spell([token], texts)!r}")
    sys.stdout.write("\n".join(lines) + "\n")
