"""Two sessions of one group: one of two rows, one of one row."""

from typing import Any

import numpy as np

from tests.export.trainers.rows import sample

TWO_TURNS = sample(
    [
        ([1, 2, 3], "context", [0, 0, 0], 0, 0),
        ([4, 5], "trained", [-0.5, -1.0], 0.5, 3),
        ([6], "context", [0], 0, 0),
        ([7], "trained", [-2.0], 0.25, 4),
    ],
    session_id="a",
    weight=0.5,
)
"""3 tokens of prompt; two trained turns of other credit and other weights, a tool's result between them."""
SHARED = sample(
    [
        ([1, 2, 3], "context", [0, 0, 0], 0, 0),
        ([4, 5], "sampled", [-0.5, -1.0], 0, 3),
        ([8], "context", [0], 0, 0),
        ([9], "trained", [-0.25], 0.5, 3),
    ],
    session_id="a",
    branch=1,
    weight=0.5,
)
"""Another branch of the session: its first turn is trained in the first row, and is context here."""
SHORT = sample([([1, 2], "context", [0, 0], 0, 0), ([5], "trained", [-3.0], -1.0, 3)], session_id="b", reward=0.0)
ROWS = [TWO_TURNS, SHARED, SHORT]


def plain(value: Any) -> Any:
    """Arrays, also those of a list, as lists."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
