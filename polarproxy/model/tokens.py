"""Tokens and their log-probabilities, as the bytes that are hashed, compared and stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


TOKEN_BYTES = 4


_INT32 = np.dtype("<i4")


_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True)
class TokenIds:
    """A sequence of token ids, held as the bytes of little-endian int32.

    The bytes are what is hashed, compared, compressed and stored; `array` is a read-only view of them, without a copy.
    """

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) % TOKEN_BYTES:
            raise InvalidValue(f"token ids take 4 bytes each; {len(self.raw)} bytes is not a multiple of 4")

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenIds:
        """From integers; raises `InvalidValue` when one does not fit into int32 or is negative."""
        try:
            array = np.fromiter(ids, dtype=np.int64)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidValue(f"token ids must be integers below 2**31: {error}") from error
        if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
            raise InvalidValue(f"token ids must lie in 0..2**31-1, found {array.min()}..{array.max()}")
        return cls(array.astype(_INT32).tobytes())

    @cached_property
    def array(self) -> NDArray[np.int32]:
        """The ids, int32 `[len]`, read-only."""
        return np.frombuffer(self.raw, dtype=_INT32)

    def __len__(self) -> int:
        return len(self.raw) // TOKEN_BYTES

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    def __add__(self, other: TokenIds) -> TokenIds:
        return TokenIds(self.raw + other.raw)

    def startswith(self, prefix: TokenIds) -> bool:
        """Whether these ids begin with all of `prefix`."""
        return self.raw.startswith(prefix.raw)

    def endswith(self, suffix: TokenIds) -> bool:
        """Whether these ids end with all of `suffix`."""
        return self.raw.endswith(suffix.raw)

    def cut(self, start: int, stop: int | None = None) -> TokenIds:
        """The ids `[start:stop]`, counted in tokens."""
        return TokenIds(self.raw[start * TOKEN_BYTES : None if stop is None else stop * TOKEN_BYTES])


@dataclass(frozen=True)
class Logprobs:
    """Log-probabilities (natural logarithm) of sampled tokens, held as the bytes of little-endian float32.

    NaN stands for a value that the engine left out or that was not a number; nothing is ever filled in.
    """

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) % TOKEN_BYTES:
            raise InvalidValue(f"logprobs take 4 bytes each; {len(self.raw)} bytes is not a multiple of 4")

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Logprobs:
        """From numbers; None becomes NaN."""
        numbers = [float("nan") if value is None else value for value in values]
        return cls(np.asarray(numbers, dtype=_FLOAT32).tobytes())

    @cached_property
    def array(self) -> NDArray[np.float32]:
        """The values, float32 `[len]`, read-only."""
        return np.frombuffer(self.raw, dtype=_FLOAT32)

    def __len__(self) -> int:
        return len(self.raw) // TOKEN_BYTES

    def __iter__(self) -> Iterator[float]:
        return iter(self.array.tolist())
