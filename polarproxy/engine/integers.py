"""A JSON array of integers as a NumPy array.

By simdjson, which makes no Python object of an integer and reads JSON and nothing else. Where there is none (no wheels for
this Python yet), by msgspec, at some three times the cost. Both accept the same arrays.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_integers = msgspec.json.Decoder(list[int])


def by_msgspec(array: bytes | memoryview) -> NDArray[np.int64]:
    """Shape `(count,)`; raises `ValueError` where the text is anything but one array of integers, each within int64."""
    try:
        # As objects first: NumPy would make floats of what is too large.
        return np.array(_integers.decode(array), dtype=object).astype(np.int64)
    except (RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error


def by_simdjson(array: bytes | memoryview) -> NDArray[np.int64]:
    """Shape `(count,)`; raises `ValueError` where the text is anything but one array of integers, each within int64."""
    import simdjson

    # It would read arrays in arrays as one.
    if bytes(array).count(b"[") > 1:
        raise ValueError("an array stands in it")
    try:
        # A parser of its own for each: one that is used again must not have anything left that it read before.
        read = simdjson.Parser().parse(array)
        if not isinstance(read, simdjson.Array):
            raise ValueError("it is no array")
        return np.frombuffer(read.as_buffer(of_type="i"), dtype=np.int64)
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from error


read_integers: Callable[[bytes | memoryview], NDArray[np.int64]] = (
    by_simdjson if find_spec("simdjson") is not None else by_msgspec
)
