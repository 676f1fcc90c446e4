"""What a reward is made of: named components with weights, ranges, gates and penalties; read strictly, digested, composed."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import xxhash

from polarproxy.credit.judges import JUDGES
from polarproxy.errors import BadReward, InvalidValue
from polarproxy.model import ComponentKind, Reward, RewardComponent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.model import TurnReward

SPEC_VERSION = 1
_KINDS = {"reward": ComponentKind.REWARD, "penalty": ComponentKind.PENALTY, "metric": ComponentKind.METRIC}


class Gate(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Passed when the value of a component, within its range, is at least this."""

    component: str
    at_least: float = 1.0
    otherwise: float = 0.0
    """The total when it is not passed. A gate of one component makes that component 0 instead."""


class Component(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One named part. Without `judge`, `python` and `command` it is taken from the rewards that the session has."""

    name: str
    judge: str | None = None
    """A built-in judge."""
    python: str | None = None
    """`module:function`, called as function(session, transcript)."""
    command: tuple[str, ...] | None = None
    """A program and its arguments."""
    reads: Literal["result", "exit", "tests"] = "result"
    """How the outcome of a command is read: a JSON line with the nonce; 1 for exit code 0; the share of tests that passed."""
    timeout_s: float = 60.0
    memory_mb: int = 2048
    options: dict[str, Any] = {}
    """Of the judge; a Python function gets them as keyword arguments, a command in its input."""
    role: Literal["reward", "penalty", "metric"] = "reward"
    """Added to the total, taken from it, or only watched."""
    weight: float = 1.0
    range: tuple[float, float] | None = None
    """Values beyond it count as its ends. None: any value."""
    gate: Gate | None = None
    missing: float | None = None
    """What it is worth when there is nothing to judge. None: then the session has no reward, unless the role is `metric`."""
    version: str = ""
    """Change it when a Python function or a command judges differently from now on."""


class Spec(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A reward: Σ weight · value of rewards − Σ weight · value of penalties, within its range, if all gates are passed."""

    components: tuple[Component, ...] = ()
    range: tuple[float, float] | None = None
    gates: tuple[Gate, ...] = ()

    @property
    def digest(self) -> str:
        """What it is known by in the store and in reports: 32 hexadecimal digits."""
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode([SPEC_VERSION, self], order="sorted"))

    @property
    def weights(self) -> dict[str, float]:
        """The signed weight of each component that is in the total."""
        signs = {"reward": 1.0, "penalty": -1.0}
        return {one.name: signs[one.role] * one.weight for one in self.components if one.role != "metric"}


class Judgement(msgspec.Struct, frozen=True):
    """What a judge said."""

    value: float | None
    """None: there was nothing to judge."""
    parts: dict[str, float] = {}
    """Of which it is made, for people to watch."""


def read_spec(value: Any) -> Spec:
    """The spec of a decoded `[reward]` table; raises `BadReward` with the place, and for an unknown key the nearest known."""
    _known(value, Spec, "reward")
    for place, component in enumerate(_items(value, "components")):
        where = f"reward.components[{place}]"
        _known(component, Component, where)
        if isinstance(component, dict) and "gate" in component:
            _known(component["gate"], Gate, f"{where}.gate")
    for place, gate in enumerate(_items(value, "gates")):
        _known(gate, Gate, f"reward.gates[{place}]")
    try:
        spec = msgspec.convert(value, Spec)
    except msgspec.ValidationError as error:
        raise BadReward(f"[reward] cannot be read: {error}") from error
    _check(spec)
    return spec


def _items(value: Any, name: str) -> Sequence[Any]:
    found = value.get(name, ()) if isinstance(value, dict) else ()
    return found if isinstance(found, list) else ()


def _known(value: Any, kind: type[msgspec.Struct], where: str) -> None:
    names = kind.__struct_fields__
    for name in value if isinstance(value, dict) else ():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
            raise BadReward(f"{where}: there is no key {name!r}; did you mean {near!r}?")


def _check(spec: Spec) -> None:
    names = [one.name for one in spec.components]
    if not names:
        raise BadReward("[reward] has no components; write at least one [[reward.components]] with a name")
    if len(set(names)) != len(names):
        raise BadReward(f"two components have one name: {', '.join(names)}")
    for one in spec.components:
        _check_component(one, names)
    for gate in spec.gates:
        _check_gate(gate, names, "reward.gates")
    _check_range(spec.range, "reward")


def _check_component(one: Component, names: Sequence[str]) -> None:
    where = f"component {one.name!r}"
    if sum(source is not None for source in (one.judge, one.python, one.command)) > 1:
        raise BadReward(f"{where}: give one of judge, python and command")
    module, _, function = (one.python or "").partition(":")
    if one.python is not None and (not function or not module or module.startswith(".")):
        raise BadReward(f"{where}: python is module:function, not {one.python!r}")
    if one.command == ():
        raise BadReward(f"{where}: the command is empty")
    if not np.isfinite(one.weight):
        raise BadReward(f"{where}: the weight is {one.weight}")
    if one.timeout_s <= 0 or one.memory_mb <= 0:
        raise BadReward(f"{where}: timeout_s and memory_mb must be greater than 0")
    _check_range(one.range, where)
    if one.gate is not None:
        _check_gate(one.gate, names, where)
    if one.judge is not None:
        judge_options(one)


def _check_range(span: tuple[float, float] | None, where: str) -> None:
    if span is not None and not span[0] < span[1]:
        raise BadReward(f"{where}: the range {list(span)} must go from the smaller to the larger number")


def _check_gate(gate: Gate, names: Sequence[str], where: str) -> None:
    if gate.component not in names:
        near = difflib.get_close_matches(gate.component, names, n=1, cutoff=0.0)[0]
        raise BadReward(
            f"{where}: the gate speaks of {gate.component!r}, which is no component; did you mean {near!r}?"
        )


def judge_options(one: Component) -> Any:
    """The options of a component's built-in judge; raises `BadReward` for an unknown judge or option."""
    where = f"component {one.name!r}"
    for name, kind, _ in JUDGES:
        if name == one.judge:
            _known(one.options, kind, f"{where}, options of {name}")
            try:
                options = msgspec.convert(one.options, kind)
                options.check()
            except (msgspec.ValidationError, BadReward) as error:
                raise BadReward(f"{where}, options of {name}: {error}") from error
            return options
    known = [name for name, _, _ in JUDGES]
    near = difflib.get_close_matches(one.judge or "", known, n=1, cutoff=0.0)[0]
    raise BadReward(f"{where}: there is no judge {one.judge!r}; did you mean {near!r}? There are {', '.join(known)}")


def compose(spec: Spec, judged: Mapping[str, Judgement], turns: tuple[TurnReward, ...] = ()) -> Reward | None:
    """The reward that judgements, one for each component, come to. None: a component of the total has no value.

    Components are kept as they were judged, before range and gate, so that other weights can be tried on them later.
    Raises `BadReward` for a value that is no finite float32.
    """
    raw = {one.name: _raw(one, judged[one.name]) for one in spec.components}
    values = {one.name: _clip(raw[one.name], one.range) for one in spec.components}
    counted = [one for one in spec.components if one.role != "metric"]
    if any(values[one.name] is None for one in counted):
        return None
    total = sum(spec.weights[one.name] * (values[one.name] or 0.0) for one in counted if _passed(one.gate, values))
    for gate in reversed(spec.gates):
        total = total if _passed(gate, values) else gate.otherwise
    low, high = spec.range or (-np.inf, np.inf)
    try:
        parts = tuple(_components(spec, raw, judged))
        return Reward(float(min(max(total, low), high)), parts, turns, spec.digest).require_trainable()
    except InvalidValue as error:
        raise BadReward(str(error)) from error


def _raw(one: Component, judgement: Judgement) -> float | None:
    return one.missing if judgement.value is None else judgement.value


def _clip(value: float | None, span: tuple[float, float] | None) -> float | None:
    return value if value is None or span is None else min(max(value, span[0]), span[1])


def _passed(gate: Gate | None, values: Mapping[str, float | None]) -> bool:
    """Nothing to judge passes no gate."""
    if gate is None:
        return True
    value = values[gate.component]
    return value is not None and value >= gate.at_least


def _components(spec: Spec, raw: Mapping[str, float | None], judged: Mapping[str, Judgement]) -> list[RewardComponent]:
    found = []
    for one in spec.components:
        value = raw[one.name]
        if value is not None:
            found.append(RewardComponent(one.name, value, _KINDS[one.role]))
        parts = judged[one.name].parts
        found += [RewardComponent(f"{one.name}/{part}", own, ComponentKind.METRIC) for part, own in parts.items()]
    return found
