"""Getting prompts back: following bases down to where a sequence was written whole, and proving the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from polarproxy.errors import StoreDamaged
from polarproxy.model import TOKEN_BYTES, TokenIds
from polarproxy.store import codec
from polarproxy.store.bases import PROMPT
from polarproxy.store.schema import calls, completions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection, RowMapping

PROMPT_COLUMNS = (
    calls.c.call_id,
    calls.c.prompt_length,
    calls.c.prompt_digest,
    calls.c.base_call_id,
    calls.c.base_choice,
    calls.c.base_length,
    calls.c.prompt_suffix,
)


class PromptReader:
    """Rebuilds prompts from suffixes; remembers what it rebuilt, so that a session costs its unique tokens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._prompts: dict[str, TokenIds] = {}
        self._sampled: dict[tuple[str, int], bytes] = {}

    def know(self, sampled: Iterable[RowMapping]) -> None:
        """Rows of `completions` that were read anyway, and need not be asked for one by one."""
        self._sampled |= {(row["call_id"], row["choice_index"]): row["token_ids"] for row in sampled}

    def prompt(self, row: RowMapping) -> TokenIds | None:
        """The prompt of a call's row, None when it has none; raises `StoreDamaged` when it is not what was written."""
        if row["prompt_length"] is None:
            return None
        chain, seen = [row], {row["call_id"]}
        while (base := chain[-1]["base_call_id"]) is not None and base not in self._prompts:
            if base in seen:
                raise StoreDamaged(f"the prompt of call {row['call_id']} builds on itself, by way of call {base}")
            seen.add(base)
            chain.append(self._row(base))
        for link in reversed(chain):
            self._prompts[link["call_id"]] = self._rebuild(link)
        return self._prompts[row["call_id"]]

    def _row(self, call_id: str) -> RowMapping:
        row = self._connection.execute(select(*PROMPT_COLUMNS).where(calls.c.call_id == call_id)).mappings().first()
        if row is None:
            raise StoreDamaged(f"call {call_id} is the base of another one, and is missing")
        return row

    def _rebuild(self, row: RowMapping) -> TokenIds:
        if row["prompt_suffix"] is None:
            raise StoreDamaged(f"the prompt of call {row['call_id']} is missing")
        suffix = codec.decode_ids(row["prompt_suffix"])
        prompt = suffix if row["base_call_id"] is None else TokenIds(b"".join((*self._base(row), suffix.raw)))
        if len(prompt) != row["prompt_length"] or codec.digest(prompt.raw) != row["prompt_digest"]:
            raise StoreDamaged(
                f"the prompt of call {row['call_id']} reads as {len(prompt)} tokens that do not match the"
                f" {row['prompt_length']} tokens that were written"
            )
        return prompt

    def _base(self, row: RowMapping) -> Iterator[memoryview | bytes]:
        """What the prompt has of its base, in pieces that are not copied: a history is long, and nearly all of a prompt."""
        if row["base_choice"] is None or row["base_length"] is None:
            raise StoreDamaged(
                f"call {row['call_id']} builds on {row['base_call_id']}, and does not say on how much of it"
            )
        prompt = self._prompts[row["base_call_id"]]
        if row["base_choice"] == PROMPT or row["base_length"] <= len(prompt):
            yield memoryview(prompt.raw)[: TOKEN_BYTES * row["base_length"]]
            return
        sampled = self._sampled.get((row["base_call_id"], row["base_choice"])) or self._read_sampled(row)
        if sampled is None:
            raise StoreDamaged(f"call {row['call_id']} builds on a completion of {row['base_call_id']} that is missing")
        yield prompt.raw
        yield memoryview(codec.decode_ids(sampled).raw)[: TOKEN_BYTES * (row["base_length"] - len(prompt))]

    def _read_sampled(self, row: RowMapping) -> bytes | None:
        of_base = completions.c.call_id == row["base_call_id"], completions.c.choice_index == row["base_choice"]
        found: bytes | None = self._connection.execute(select(completions.c.token_ids).where(*of_base)).scalar()
        return found
