"""What was written is what is read: every field of every call, session, reward and spelling."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from polarproxy.model import Call, Logprobs, TokenIds
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.schema import bodies
from polarproxy.store.writer import Writer
from tests.database import Databases
from tests.store.samples import a_call, a_completion, a_session, calls, new_call

SECONDS = 20


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.data())
def test_any_calls_come_back_equal(databases: Databases, sessions: list[int], data: st.DataObject) -> None:
    written: dict[str, list[Call]] = {}
    for number, place in enumerate(sessions):
        own = written.setdefault(f"s{place}", [])
        own.append(data.draw(calls(call_id=f"c{number}", session_id=f"s{place}", ordinal=len(own))))
    with databases() as url:
        engine = open_database(url)
        writer = Writer(engine)
        try:
            # Given twice, each is stored once.
            for _ in range(2):
                futures = [writer.submit(new_call(call)) for own in written.values() for call in own]
                for future in futures:
                    future.result(SECONDS)
            for session_id, own in written.items():
                assert [captured.call for captured in Repository(engine).calls(session_id)] == own
            assert list(Repository(engine).verify()) == []
        finally:
            writer.close()
            engine.dispose()


def test_an_empty_prompt_is_not_an_unknown_one(writer: Writer, repository: Repository) -> None:
    for number, prompt in enumerate(((), None)):
        writer.submit(new_call(a_call(f"c{number}", number, prompt, (7,)))).result(SECONDS)
    first, second = (captured.call.prompt_token_ids for captured in repository.calls("s1"))
    assert first == TokenIds()
    assert second is None


def test_values_that_are_no_numbers_keep_their_bits(writer: Writer, repository: Repository) -> None:
    odd = Logprobs.of([None, float("-inf"), float("inf"), -9999.0, -0.0, 1e-45])
    call = a_call(completions=(a_completion([1, 2, 3, 4, 5, 6], logprobs=odd),))
    writer.submit(new_call(call)).result(SECONDS)
    (completion,) = repository.call("c1").call.completions
    assert completion.logprobs == odd


def test_a_count_of_logprobs_that_is_wrong_is_kept_as_it_is(writer: Writer, repository: Repository) -> None:
    call = a_call(completions=(a_completion([1, 2, 3], logprobs=Logprobs.of([-1.0])),))
    writer.submit(new_call(call)).result(SECONDS)
    assert repository.call("c1").call == call


def test_no_logprobs_are_not_empty_ones(writer: Writer, repository: Repository) -> None:
    both = (a_completion([], 0, logprobs=None), a_completion([], 1, logprobs=Logprobs()))
    writer.submit(new_call(a_call(completions=both))).result(SECONDS)
    assert repository.call("c1").call.completions == both


def test_equal_bodies_are_stored_once(writer: Writer, repository: Repository, engine: Engine) -> None:
    body = bytes(range(256)) * 200
    for number in range(3):
        writer.submit(new_call(a_call(f"c{number}", number, request_body=body))).result(SECONDS)
    assert [captured.call.request_body for captured in repository.calls("s1")] == [body] * 3
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(bodies)).scalar_one() == 1


def test_spellings_are_kept_by_model(writer: Writer, repository: Repository) -> None:
    writer.submit(new_call(a_call("c1", 0, served_model="a"), t1=b"one", t2=b"\xff")).result(SECONDS)
    writer.submit(new_call(a_call("c2", 1, served_model="b"), t1=b"uno")).result(SECONDS)
    writer.submit(new_call(a_call("c3", 2, served_model="a"), t1=b"another", t3=b"three")).result(SECONDS)
    assert repository.token_texts("a") == {1: b"one", 2: b"\xff", 3: b"three"}
    assert repository.token_texts("b") == {1: b"uno"}
    assert repository.token_texts("c") == {}


def test_a_session_made_on_purpose_comes_back(writer: Writer, repository: Repository) -> None:
    session = a_session("mine", task_id="t", group_id="g", harness="codex", model="m", metadata=(("a", "1"), ("b", "")))
    writer.submit(session).result(SECONDS)
    assert repository.session("mine") == session


def test_a_call_does_not_change_the_session_it_finds(writer: Writer, repository: Repository) -> None:
    session = a_session("s1", task_id="t", group_id="g")
    repository.add_session(session)
    writer.submit(new_call(a_call())).result(SECONDS)
    assert repository.session("s1") == session
