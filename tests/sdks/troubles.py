"""What may go wrong between an SDK and its answer, the same for every dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polarproxy.model import CallStatus
from tests.fakes import Faults, Script, Turn, always
from tests.proxy.rig import Rig, Starter
from tests.sdks.scenes import LONG

REJECTED, FAILED, TIMEOUT = CallStatus.REJECTED, CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT


@dataclass(frozen=True)
class Trouble:
    """`words` stand in the message of the error; `status` is that of the call in the store, None when it is not there."""

    words: str
    status: CallStatus | None = None
    faults: Faults = field(default_factory=Faults)
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = "hi"
    key: str | None = None
    """None: the key of session `s1`."""
    closed: bool = False
    """Whether the session is."""

    async def begin(self, start: Starter) -> Rig:
        """A rig that is in this trouble."""
        rig = await start(always(LONG, faults=self.faults), **self.settings)
        if self.closed:
            assert (await rig.control("POST", "/api/sessions", {"session_id": "s1"})).status == 201
            assert (await rig.control("POST", "/api/sessions/s1/close")).status == 200
        return rig

    def key_for(self, rig: Rig) -> str:
        return self.key or rig.parts.signer.key("s1")

    async def check(self, rig: Rig) -> None:
        """The store holds the call as it should, and no turn."""
        if self.status is None:
            assert (rig.calls(), rig.received) == ([], [])
            return
        call = (await rig.call()).call
        assert (call.status, call.completions) == (self.status, ())
        assert call.error


TROUBLES = {
    "overflow": Trouble(
        "This model's maximum context length is 32768 tokens. However, your prompt", REJECTED, prompt="word " * 40_000
    ),
    "unsigned": Trouble("signed session keys only", settings={"auth": "required"}, key="any"),
    "forged": Trouble("not made by this proxy", key="sk-polar-s1-0123456789abcdef0123456789abcdef"),
    "unknown model": Trouble("The model `any-model` does not exist.", REJECTED, settings={"model_map": "off"}),
    "closed": Trouble("closed", closed=True),
    "too large": Trouble("too large", settings={"max_body_mb": 1}, prompt="x" * (1 << 20)),
    "too many": Trouble("scripted fault 429", REJECTED, Faults(status=429, retry_after=7)),
    "failed": Trouble("scripted fault 500", FAILED, Faults(status=500)),
    "busy": Trouble("scripted fault 503", FAILED, Faults(status=503, retry_after=7)),
    "gone": Trouble("the engine", FAILED, Faults(refuse=True)),
    "silent": Trouble("the engine", TIMEOUT, Faults(first_byte_delay=60), settings={"read_timeout": 0.2}),
}

CUTS = {
    "cut": Faults(cut_after=4),
    "reset": Faults(reset_after=4),
    "ended without an end": Faults(end_after=4),
    "failed": Faults(error_after=4),
}
"""In the middle of a stream, after three tokens of `LONG`."""


async def check_cut(rig: Rig) -> None:
    """The tokens that came are kept, as a call that failed."""
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (FAILED, False)
    (completion,) = captured.call.completions
    assert list(completion.token_ids) == LONG.token_ids[:3]


def once(*faults: Faults) -> Script:
    """A script that fails so, and then goes well."""
    return Script((*(Turn((LONG,), fault) for fault in faults), Turn((LONG,))))
