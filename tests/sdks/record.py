"""What must be in the store after an SDK used the proxy: every call, in its dialect, with the engine's own tokens."""

from collections.abc import Sequence

from polarproxy.model import Call, CallStatus, Dialect
from tests.fakes import Reply
from tests.fakes.toy_tokenizer import prompt_ids
from tests.proxy.rig import Rig


async def recorded(rig: Rig, dialect: Dialect, *sampled: Reply | None, session: str = "s1", n: int = 1) -> list[Call]:
    """All calls of the rig's only session, checked; `sampled` is what each of them got, None where it got an error.

    With `n`, every one of so many choices got that.
    """
    calls = [captured.call for captured in await rig.recorded(len(sampled), session)]
    prompts = [prompt_ids(body["messages"], body.get("tools")) for body in (asked.json for asked in rig.received)]
    for call, prompt, reply in zip(calls, prompts, sampled, strict=True):
        assert call.dialect is dialect
        if reply is None:
            assert call.status in (CallStatus.REJECTED, CallStatus.ENGINE_ERROR)
            assert call.completions == ()
        else:
            check_tokens(call, prompt, [reply] * n)
    return calls


def check_tokens(call: Call, prompt: Sequence[int], replies: Sequence[Reply]) -> None:
    """The call has these prompt ids, and of each choice the ids and logprobs that were sampled."""
    assert call.status is CallStatus.COMPLETED
    assert call.error is None
    assert list(call.prompt_token_ids or ()) == list(prompt)
    assert len(call.completions) == len(replies)
    for completion, reply in zip(call.completions, replies, strict=True):
        assert list(completion.token_ids) == reply.token_ids
        assert list(completion.logprobs or ()) == reply.logprobs
