"""A task as it is submitted: what is to be run, where, how often, and how it is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from polarproxy.credit.spec import read_spec
from polarproxy.errors import UNREADABLE, BadRequest, BadReward, InvalidValue
from polarproxy.model import FORCEABLE, SessionStatus
from polarproxy.model.explaining import explained
from polarproxy.rollout.evaluators.asked import Asked, Function, check_all, is_inside
from polarproxy.rollout.judging import find_function
from polarproxy.rollout.runtimes.protocol import Archive, Folder, GitCommit, Image, Limits, Source, Spec

_MOST_ROLLOUTS = 100_000
_LARGEST = 2**31 - 1


class RuntimeAsked(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Where the harness runs, and what it finds there: one of `files`, `folder`, `git`, `archive` and `image_folder`."""

    kind: str = ""
    """Empty: the best one that works here."""
    folder: str | None = None
    git: str | None = None
    """A repository; `commit` says which commit of it."""
    commit: str = "HEAD"
    archive: str | None = None
    image: str | None = None
    """Of containers. None: the runtime's own."""
    image_folder: str | None = None
    files: dict[str, str] = {}
    """By path."""
    limits: Limits = Limits()

    def source(self) -> Source | None:
        """Of the working copy. None: it is empty. Raises `BadRequest`."""
        given: list[Source] = []
        given += [] if self.folder is None else [Folder(Path(self.folder))]
        given += [] if self.git is None else [GitCommit(self.git, self.commit)]
        given += [] if self.archive is None else [Archive(Path(self.archive))]
        given += [] if self.image_folder is None else [Image(self.image_folder)]
        if len(given) + bool(self.files) > 1:
            raise BadRequest("runtime: give one of files, folder, git, archive and image_folder")
        for path in self.files:
            if not is_inside(path):
                raise BadRequest(f"runtime: files are paths inside the working copy, not {path!r}")
        return given[0] if given else None

    def spec(self, proxy: str | None, programs: tuple[Path, ...], source: Source | None) -> Spec:
        """What a runtime is started with."""
        return Spec(source=source, limits=self.limits, programs=programs, proxy=proxy, image=self.image)


class Keep(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Which rollouts are usable: all that have a reward, unless more is asked. None: no limit."""

    statuses: tuple[SessionStatus, ...] = (SessionStatus.COMPLETED, SessionStatus.AGENT_ERROR, SessionStatus.TIMEOUT)
    min_reward: float | None = None
    max_reward: float | None = None
    min_turns: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    """Of all that was sampled."""


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Body of `POST /api/tasks`."""

    instruction: str
    harness: str
    runtime: str | RuntimeAsked = RuntimeAsked()
    """A kind of runtime, or more about it."""
    evaluator: Asked | tuple[Asked, ...] = ()
    reward: dict[str, Any] | None = None
    """A reward specification (`components`, …) over the evaluators' components. None: their sum is the reward."""
    num_samples: int = 1
    enough: int | None = None
    """Once so many are usable, the rest is left out. None: all are run."""
    timeout_s: float = 1800.0
    """Of the harness while it runs; waiting for a place, and for an engine that is paused, does not count."""
    judge_unfinished: bool = False
    """Whether a harness that crashed or ran out of time is judged by what it left."""
    keep: Keep = Keep()
    model: str | None = None
    """None: what the engine serves."""
    sampling: dict[str, Any] = {}
    """Set by the proxy in every request of the harness: `temperature`, `top_p`, …"""
    priority: int = 0
    group: str | None = None
    """Whose baseline it shares. None: the task's own."""
    task: str | None = None
    """What its sessions name as their task. None: its id."""
    metadata: dict[str, str] = {}
    callback_url: str | None = None

    @property
    def place(self) -> RuntimeAsked:
        """The runtime."""
        return RuntimeAsked(kind=self.runtime) if isinstance(self.runtime, str) else self.runtime

    @property
    def evaluators(self) -> tuple[Asked, ...]:
        """In order; none: nothing is judged."""
        return self.evaluator if isinstance(self.evaluator, tuple) else (self.evaluator,)


def read_request(body: bytes) -> TaskRequest:
    """Raises `BadRequest` with what is wrong and where."""
    try:
        request = msgspec.json.decode(body, type=TaskRequest)
    except (*UNREADABLE, InvalidValue) as error:
        raise BadRequest(f"the body is no task: {explained(error, TaskRequest)}") from error
    check_request(request)
    return request


def check_request(request: TaskRequest) -> None:
    """Raises `BadRequest` for a task that could not be run."""
    if not request.instruction.strip():
        raise BadRequest("the instruction is empty")
    if not 1 <= request.num_samples <= _MOST_ROLLOUTS:
        raise BadRequest(f"num_samples must lie in 1..{_MOST_ROLLOUTS}, not {request.num_samples}")
    if request.enough is not None and not 1 <= request.enough <= request.num_samples:
        raise BadRequest(f"enough must lie in 1..num_samples ({request.num_samples}), not {request.enough}")
    if not (np.isfinite(request.timeout_s) and request.timeout_s > 0):
        raise BadRequest(f"timeout_s must be greater than 0, not {request.timeout_s}")
    if abs(request.priority) > _LARGEST:
        raise BadRequest(f"priority must lie in -{_LARGEST}..{_LARGEST}")
    _check_sampling(request.sampling)
    request.place.source()
    if request.callback_url is not None and not _is_web(request.callback_url):
        raise BadRequest(f"callback_url must be an http:// or https:// URL, not {request.callback_url!r}")
    try:
        check_all(request.evaluators)
        for one in request.evaluators:
            if isinstance(one, Function):
                find_function(one.function)
        if request.reward is not None:
            read_spec(request.reward)
    except BadReward as error:
        raise BadRequest(str(error)) from error


def _check_sampling(sampling: dict[str, Any]) -> None:
    for name, value in sampling.items():
        if name not in FORCEABLE:
            raise BadRequest(f"sampling: there is no parameter {name!r}; there are {', '.join(FORCEABLE)}")
        # A whole number may have any size, and is compared all the same.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**64:
            raise BadRequest(f"sampling: {name} must be a number, not {str(value)[:50]!r}")


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, or a port that is none
        return False
