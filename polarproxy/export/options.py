"""What to export, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from polarproxy.credit.estimators import ESTIMATORS, CreditOptions
from polarproxy.errors import BadExport
from polarproxy.export.where import Where
from polarproxy.trajectory.merging import MERGES

if TYPE_CHECKING:
    from polarproxy.batch.sample import Weighting

NO_CREDIT = "none"
ADVANTAGES = (*(known.name for known in ESTIMATORS), NO_CREDIT)
OnCollapse: TypeAlias = Literal["keep", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to export."""

    advantage: str = "grpo"
    """An estimator's name, or `none`: rows without credit, also of sessions without a reward."""
    weighting: Weighting = "per_session"
    group_id: str | None = None
    """Only sessions of this group. None: all."""
    merge: str = MERGES[0][0]
    """The name of the rule that makes rows of calls."""
    strict: bool = True
    """Whether turns with an error are refused: left out, whatever else stands in their rows."""
    min_coverage: float | None = None
    """Sessions of which a smaller part of the sampled tokens can be trained are refused. None: none is."""
    credit: CreditOptions = field(default_factory=CreditOptions)
    on_collapse: OnCollapse = "keep"
    """What becomes of groups whose rewards do not differ: kept with advantage 0, left out, or no export at all."""
    policy_version: int | None = None
    """The weights that are to be trained. None: the latest that the store knows."""
    max_lag: int | None = None
    """Sessions sampled by weights more than so many versions before are out of the loss and of the baseline. None: none."""
    model: str | None = None
    """The model, as the engine calls it, whose tokens are trained; others' are context. None: those of all."""
    where: Where = field(default_factory=Where)
    """Which sessions and turns."""
    max_tokens: int | None = None
    """Rows keep so many tokens from their beginning. None: all."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise BadExport(f"a row keeps at least one token; --max-tokens cannot be {self.max_tokens}")
        if self.max_lag is not None and self.max_lag < 0:
            raise BadExport(f"a lag is counted from 0; --max-lag cannot be {self.max_lag}")
        if self.min_coverage is not None and not 0 <= self.min_coverage <= 1:
            raise BadExport(f"coverage lies between 0 and 1; {self.min_coverage} does not")
        if self.merge not in dict(MERGES):
            raise BadExport(f"there is no merge rule {self.merge!r}; choose one of {', '.join(dict(MERGES))}")
        if self.advantage not in ADVANTAGES:
            raise BadExport(f"there is no advantage {self.advantage!r}; choose one of {', '.join(ADVANTAGES)}")
