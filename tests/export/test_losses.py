"""The losses of GRPO and GTPO, written out in plain torch from rewards, are those of our exported batches.

Left: the papers' formulas over groups of rewards and turns, with every advantage computed there. Right: sessions in a store,
exported, read by a `DataLoader`, and the clipped loss with the advantages, masks and log-probabilities of the batch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polarproxy.credit.estimators import CreditOptions
from polarproxy.export.collect import Collection
from polarproxy.export.crediting import unwatched
from polarproxy.export.files import format_named
from polarproxy.export.options import Options
from polarproxy.export.running import Job, run
from polarproxy.model import Reward, Session
from polarproxy.store.repository import Repository
from tests.export.exported import Fill
from tests.trajectory.build import WHEN, Said, call

torch = pytest.importorskip("torch", reason="needs torch: pip install 'polarproxy[torch]'")

if TYPE_CHECKING:
    from polarproxy.batch.torch import GRPOBatch
    from polarproxy.export.dataset import GRPODataset
else:
    from polarproxy.batch.torch import GRPOBatch
    from polarproxy.export.dataset import GRPODataset

CLIP = 0.2
TOLERANCE = 1e-6
GROUPS = ((1.0, 0.0, 0.0, 0.0), (0.25, 0.5, -1.0, 2.0))
TURNS = (1, 2, 2, 3)
"""Turns of the sessions of a group; turn t samples t + 2 tokens."""


def lengths(turns: int) -> list[int]:
    return [turn + 2 for turn in range(turns)]


def record(fill: Fill, turns: Sequence[int] = TURNS) -> None:
    """Two groups of four sessions; the prompt of each turn is the whole of the turn before and one token more."""
    for group, rewards in enumerate(GROUPS):
        for place, (reward, count) in enumerate(zip(rewards, turns, strict=True)):
            context, calls = [1], []
            for turn, size in enumerate(lengths(count)):
                sampled = [10 * turn + one + 2 for one in range(size)]
                calls.append(call(turn, context, Said(sampled)))
                context = [*context, *sampled, 90 + turn]
            fill(Session(f"g{group}-{place}", WHEN, group_id=f"g{group}"), calls, Reward(reward))


def exported(repository: Repository, folder: Path, advantage: str, packed: bool, credit: CreditOptions) -> GRPOBatch:
    job = Job(folder / "rows.parquet", format_named("parquet"))
    run(Collection(repository, Options(advantage=advantage, credit=credit)), job, unwatched)
    collate = GRPOBatch.packed if packed else GRPOBatch.padded
    (batch,) = torch.utils.data.DataLoader(GRPODataset(job.out), batch_size=99, collate_fn=collate)
    return batch  # type: ignore[no-any-return]


def moved(old: Any, ordinal: int) -> Any:
    """The log-probabilities of the policy that is trained: others than those that sampled, some beyond the clip."""
    steps = torch.arange(len(old), dtype=torch.float64) + ordinal
    return old + 0.3 * torch.sin(steps * 1.7)


def surrogate(new: Any, old: Any, advantage: Any) -> Any:
    ratio = torch.exp(new - old)
    return torch.minimum(ratio * advantage, torch.clamp(ratio, 1 - CLIP, 1 + CLIP) * advantage)


def batch_loss(batch: GRPOBatch) -> Any:
    """Mean over sessions of the mean over their trained tokens, by the batch alone. Each session is one row here."""
    assert batch.advantages is not None
    parts: list[Any] = []
    for place, row in enumerate(batch.rows()):
        mask = torch.from_numpy(row.loss_mask) == 1
        old = torch.from_numpy(row.rollout_logprobs)[mask].double()
        assert row.advantages is not None
        advantage = torch.from_numpy(row.advantages)[mask].double()
        parts.append(row.loss_weight * surrogate(moved(old, place), old, advantage).mean())
    return -torch.stack(parts).mean()


def sampled_logprobs(count: int) -> Any:
    """As they were recorded, of all turns of a session."""
    from tests.trajectory.build import logprob

    return torch.tensor(
        [logprob(turn, 0, place) for turn, size in enumerate(lengths(count)) for place in range(size)],
        dtype=torch.float64,
    )


def grpo_by_hand() -> Any:
    """DeepSeekMath (arXiv 2402.03300), equation 3 without KL: A = (r − mean) / std for every token of a session."""
    parts: list[Any] = []
    for rewards in GROUPS:
        values = torch.tensor(rewards, dtype=torch.float64)
        advantages = (values - values.mean()) / (values.std() + 1e-6)
        for advantage, count in zip(advantages, TURNS, strict=True):
            old = sampled_logprobs(count)
            parts.append(surrogate(moved(old, len(parts)), old, advantage).mean())
    return -torch.stack(parts).mean()


def gtpo_by_hand(turns: Sequence[int], gamma: float) -> Any:
    """GTPO (arXiv 2511.14846): R_j = Σ_{m ≥ j} γ^(m − j) r_m, normalised over the turns of the batch.

    Every session has equally many turns, as in the paper's formula; all turns are well formed and no code is compared.
    """
    returns = torch.tensor(
        [
            [reward * gamma ** (count - 1 - turn) for turn in range(count)]
            for rewards in GROUPS
            for reward, count in zip(rewards, turns, strict=True)
        ],
        dtype=torch.float64,
    )
    advantages = (returns - returns.mean()) / (returns.std() + 1e-6)
    parts: list[Any] = []
    for own, count in zip(advantages, [*turns, *turns], strict=True):
        old = sampled_logprobs(count)
        spread = torch.cat([own[turn].expand(size) for turn, size in enumerate(lengths(count))])
        parts.append(surrogate(moved(old, len(parts)), old, spread).mean())
    return -torch.stack(parts).mean()


@pytest.mark.parametrize("packed", [False, True])
def test_grpo(repository: Repository, fill: Fill, tmp_path: Path, packed: bool) -> None:
    record(fill)
    batch = exported(repository, tmp_path, "grpo", packed, CreditOptions())
    assert batch_loss(batch).item() == pytest.approx(grpo_by_hand().item(), abs=TOLERANCE)
    first = next(row.advantages for row in batch.rows())
    assert first is not None
    # 0.75 / 0.5: the reward 1 among 1, 0, 0, 0.
    assert first.max() == pytest.approx(1.5, abs=1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_gtpo(repository: Repository, fill: Fill, tmp_path: Path, packed: bool, gamma: float) -> None:
    turns = (3, 3, 3, 3)
    record(fill, turns)
    batch = exported(repository, tmp_path, "gtpo", packed, CreditOptions(gamma=gamma, alpha=0.0))
    assert batch_loss(batch).item() == pytest.approx(gtpo_by_hand(turns, gamma).item(), abs=TOLERANCE)


def test_the_two_losses_are_not_the_same(repository: Repository, fill: Fill, tmp_path: Path) -> None:
    """Or the tests above would say nothing of the advantages."""
    turns = (3, 3, 3, 3)
    record(fill, turns)
    losses = {
        name: batch_loss(exported(repository, tmp_path, name, False, CreditOptions(alpha=0.0))).item()
        for name in ("grpo", "gtpo", "dr_grpo")
    }
    assert len({round(loss, 4) for loss in losses.values()}) == 3


def test_baselines_of_one_one_one_nothing_and_no_reward(repository: Repository, fill: Fill) -> None:
    """[1, 1, 1, 0] by rows of two sessions has the baseline 0.5; no reward is in none; a group of one has 0."""
    forks = [call(place, [place + 1], Said([9])) for place in range(3)]
    fill(Session("many", WHEN, group_id="g"), forks, Reward(1.0))
    fill(Session("one", WHEN, group_id="g"), [call(0, [1], Said([9]))], Reward(0.0))
    fill(Session("unscored", WHEN, group_id="g"), [call(0, [1], Said([9]))], None)
    fill(Session("alone", WHEN, group_id="h"), [call(0, [1], Said([9]))], Reward(-7.0))
    collection = Collection(repository, Options(advantage="dr_grpo"))
    rows = [
        (row.session_id, row.reward, float(row.advantages[1]))
        for row in collection.rows()
        if row.advantages is not None
    ]
    assert rows == [("many", 1.0, 0.5)] * 3 + [("one", 0.0, -0.5), ("alone", -7.0, 0.0)]
    assert collection.account.left_out_sessions == {"no_reward": 1}
    assert collection.account.collapse.flat_groups == ("h",)
