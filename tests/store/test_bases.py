"""A prompt that repeats an earlier sequence is stored as what lies beyond it, and always comes back whole.

Which base is taken changes the size of the store, never its meaning.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from polarproxy.model import TokenIds
from polarproxy.store import codec
from polarproxy.store.bases import PROMPT, Base, BaseIndex, shared_length
from polarproxy.store.repository import Repository
from polarproxy.store.schema import calls
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, new_call

SECONDS = 20
HEAD = list(range(1000, 1100))


def store(writer: Writer, *written: tuple[str, int, Sequence[int], Sequence[int]], session: str = "s1") -> None:
    for call_id, ordinal, prompt, sampled in written:
        writer.submit(new_call(a_call(call_id, ordinal, prompt, sampled, session_id=session))).result(SECONDS)


def stored(engine: Engine, call_id: str) -> tuple[Base | None, list[int]]:
    """The base and the ids that lie in the row of a call."""
    columns = (calls.c.base_call_id, calls.c.base_choice, calls.c.base_length, calls.c.prompt_suffix)
    with engine.connect() as connection:
        found, choice, length, suffix = connection.execute(select(*columns).where(calls.c.call_id == call_id)).one()
    return None if found is None else Base(found, choice, length), list(codec.decode_ids(suffix))


def prompts(repository: Repository, session: str = "s1") -> list[list[int]]:
    return [list(captured.call.prompt_token_ids or ()) for captured in repository.calls(session)]


def test_a_growing_conversation_stores_only_what_is_new(writer: Writer, engine: Engine, repository: Repository) -> None:
    turns, prompt = [], list(HEAD)
    for number in range(6):
        turns.append(list(prompt))
        store(writer, (f"c{number}", number, prompt, [1, 2, number]))
        prompt = [*prompt, 1, 2, number, 50 + number]
    assert stored(engine, "c0") == (None, HEAD)
    for number in range(1, 6):
        base, suffix = stored(engine, f"c{number}")
        assert base == Base(f"c{number - 1}", 0, len(turns[number]) - 1)
        assert suffix == [49 + number]
    assert prompts(repository) == turns


def test_a_fork_stores_what_lies_beyond_the_shared_part(writer: Writer, engine: Engine, repository: Repository) -> None:
    left, right = [*HEAD, 1, 2, 3], [*HEAD, 1, 9, 9]
    store(writer, ("c0", 0, left, [7]), ("c1", 1, right, [8]))
    assert stored(engine, "c1") == (Base("c0", 0, len(HEAD) + 1), [9, 9])
    assert prompts(repository) == [left, right]


def test_a_prompt_cut_inside_an_earlier_prompt_is_rebuilt(
    writer: Writer, engine: Engine, repository: Repository
) -> None:
    store(writer, ("c0", 0, [*HEAD, 5, 6, 7], [8]), ("c1", 1, HEAD, [9]), ("c2", 2, [*HEAD, 5], []))
    assert stored(engine, "c1") == (Base("c0", 0, len(HEAD)), [])
    assert prompts(repository) == [[*HEAD, 5, 6, 7], HEAD, [*HEAD, 5]]


def test_siblings_share_their_task_across_sessions(writer: Writer, engine: Engine, repository: Repository) -> None:
    for number in range(3):
        store(writer, (f"c{number}", 0, [*HEAD, number], [7]), session=f"s{number}")
    assert stored(engine, "c0") == (None, [*HEAD, 0])
    for number in (1, 2):
        assert stored(engine, f"c{number}") == (Base("c0", PROMPT, len(HEAD)), [number])
        assert prompts(repository, f"s{number}") == [[*HEAD, number]]


def test_a_short_shared_part_is_not_worth_a_base(writer: Writer, engine: Engine) -> None:
    store(writer, ("c0", 0, HEAD[:31], [1]), ("c1", 1, [*HEAD[:31], 2, 3], [1]))
    assert stored(engine, "c1")[0] is None


def test_a_new_process_goes_on_where_the_old_one_ended(engine: Engine, repository: Repository) -> None:
    first = Writer(engine)
    store(first, ("c0", 0, HEAD, [1]), ("c1", 1, [*HEAD, 1, 2], [3]))
    first.close()
    second = Writer(engine)
    store(second, ("c2", 2, [*HEAD, 1, 2, 3, 4], [5]))
    second.close()
    assert stored(engine, "c2") == (Base("c1", 0, len(HEAD) + 3), [4])
    assert prompts(repository)[2] == [*HEAD, 1, 2, 3, 4]


def test_calls_of_one_group_do_not_build_on_each_other_before_they_are_stored(
    engine: Engine, repository: Repository
) -> None:
    writer = Writer(engine)
    futures = [writer.submit(new_call(a_call(f"c{n}", n, [*HEAD, *range(n)], [n]))) for n in range(100)]
    for future in futures:
        future.result(SECONDS)
    writer.close()
    assert prompts(repository) == [[*HEAD, *range(n)] for n in range(100)]
    assert list(repository.verify()) == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=6)), max_size=12), st.integers(1, 400)
)
def test_the_index_only_ever_names_what_is_really_shared(added: list[tuple[int, list[int]]], max_bytes: int) -> None:
    """Also when it has room for next to nothing."""
    index, contexts, known = BaseIndex(max_bytes), dict[str, TokenIds](), dict[str, TokenIds]()
    for number, (session, tail) in enumerate(added):
        call = a_call(f"c{number}", number, [*HEAD[:40], *tail], [number], session_id=f"s{session}")
        prompt = call.prompt_token_ids
        assert prompt is not None
        base = index.find(call.session_id, prompt)
        if base is not None:
            whole = known[base.call_id] if base.choice == PROMPT else contexts[base.call_id]
            assert base.length >= 32
            assert whole.cut(0, base.length) == prompt.cut(0, base.length)
        index.add(call)
        known[call.call_id], contexts[call.call_id] = prompt, prompt + call.completions[0].token_ids


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_shared_length_is_that_of_the_common_beginning(left: list[int], right: list[int]) -> None:
    shared = shared_length(TokenIds.of(left), TokenIds.of(right))
    assert left[:shared] == right[:shared]
    assert shared == min(len(left), len(right)) or left[shared] != right[shared]
