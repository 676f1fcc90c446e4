"""The latest of a kind for each session, within a bound."""

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.store.recent import Recent

BOUND = 10


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, BOUND + 2)), max_size=40))
def test_as_many_of_the_latest_as_there_is_room_for(told: list[tuple[str, int]]) -> None:
    recent: Recent[int] = Recent(BOUND)
    model: dict[str, tuple[int, int]] = {}
    for number, (session, size) in enumerate(told):
        recent.remember(session, number, size)
        model.pop(session, None)
        model[session] = number, size
        while sum(taken for _, taken in model.values()) > BOUND:
            del model[next(iter(model))]
        found = {name: latest for name in "abcd" if (latest := recent.of(name)) is not None}
        assert found == {name: latest for name, (latest, _) in model.items()}
