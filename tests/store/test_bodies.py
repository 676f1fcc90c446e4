"""A request repeats the one before it; what is stored is the rest, and what is read is the whole."""

from base64 import b64encode

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, func, select

from polarproxy.store import codec
from polarproxy.store.blobs import put_back
from polarproxy.store.bodies import BodyBases, shared_bytes, shared_tail
from polarproxy.store.repository import Repository
from polarproxy.store.schema import blobs, bodies
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, new_call

SECONDS = 20
HISTORY = b'{"messages":[' + b'{"role":"user","content":"as before"},' * 20


def write(writer: Writer, *sent: bytes, session: str = "s1", first: int = 0) -> None:
    for number, body in enumerate(sent, first):
        call = a_call(f"{session}-{number}", number, session_id=session, request_body=body)
        writer.submit(new_call(call)).result(SECONDS)


def read(repository: Repository, session: str = "s1") -> list[bytes]:
    return [captured.call.request_body for captured in repository.calls(session)]


def stored(engine: Engine, body: bytes) -> bytes:
    """What lies in the row of a body."""
    with engine.connect() as connection:
        query = select(bodies.c.data).where(bodies.c.digest == codec.digest(body))
        return codec.decompress(connection.execute(query).scalar_one())


def test_a_growing_conversation_stores_only_what_is_new(writer: Writer, engine: Engine, repository: Repository) -> None:
    sent = [HISTORY + b'"more",' * number for number in range(6)]
    write(writer, *sent)
    assert stored(engine, sent[0]) == HISTORY
    assert [stored(engine, body) for body in sent[1:]] == [b'"more",'] * 5
    assert read(repository) == sent


def test_a_body_that_turns_off_stores_what_lies_beyond(writer: Writer, engine: Engine, repository: Repository) -> None:
    sent = [HISTORY + b"left", HISTORY + b"right", HISTORY[:300], HISTORY + b"left"]
    write(writer, *sent)
    assert stored(engine, sent[1]) == b"right"
    assert read(repository) == sent


def test_a_shorter_body_is_rebuilt_from_a_longer_one(writer: Writer, engine: Engine, repository: Repository) -> None:
    write(writer, HISTORY, HISTORY[:400])
    assert stored(engine, HISTORY[:400]) == b""
    assert read(repository) == [HISTORY, HISTORY[:400]]


def test_a_short_beginning_is_not_worth_a_base(writer: Writer, engine: Engine) -> None:
    write(writer, HISTORY, HISTORY[:255] + b"!")
    assert stored(engine, HISTORY[:255] + b"!") == HISTORY[:255] + b"!"


def test_a_new_process_needs_no_memory_of_the_old_one(engine: Engine, repository: Repository) -> None:
    for number in range(3):
        writer = Writer(engine)
        write(writer, HISTORY + b"x" * number, first=number)
        writer.close()
    assert read(repository) == [HISTORY + b"x" * number for number in range(3)]


def test_sessions_share_equal_bodies(writer: Writer, repository: Repository) -> None:
    write(writer, HISTORY, HISTORY + b"a", session="s1")
    write(writer, HISTORY + b"a", HISTORY, session="s2")
    assert read(repository, "s1") == [HISTORY, HISTORY + b"a"]
    assert read(repository, "s2") == [HISTORY + b"a", HISTORY]
    assert list(repository.verify()) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=4)), max_size=12), st.integers(1, 2000))
def test_what_is_named_as_shared_is_shared(sent: list[tuple[int, bytes]], max_bytes: int) -> None:
    """Also when there is room for next to nothing. Every base was stored before."""
    bases, known = BodyBases(max_bytes), dict[bytes, bytes]()
    for session, tail in sent:
        body = HISTORY + tail
        stored = bases.rows(f"s{session}", body)
        row = stored.body
        assert stored.blobs == stored.references == []
        base = b"" if row["base_digest"] is None else known[row["base_digest"]]
        end = base[len(base) - row["base_tail"] :]
        assert base[: row["base_length"]] + put_back(row["data"], lambda _: None) + end == body
        assert (row["digest"], row["length"]) == (codec.digest(body), len(body))
        known[row["digest"]] = body
        bases.add(f"s{session}", stored, body)


@given(st.binary(), st.binary(), st.binary())
def test_the_shared_length_is_that_of_the_common_beginning(head: bytes, left: bytes, right: bytes) -> None:
    shared = shared_bytes(head + left, head + right)
    assert shared >= len(head)
    assert (head + left)[:shared] == (head + right)[:shared]
    assert shared == min(len(head + left), len(head + right)) or (head + left)[shared] != (head + right)[shared]


def test_an_image_is_stored_once_however_many_sessions_send_it(
    writer: Writer, engine: Engine, repository: Repository
) -> None:
    image = bytes(range(256)) * 40
    url = b'"data:image/png;base64,' + b64encode(image) + b'"'
    for session in ("s1", "s2", "s3"):
        head = b'"%b"' % session.encode() + HISTORY + b"[%b]" % url
        sent = [head, head + b'"more"']
        write(writer, *sent, session=session)
        assert read(repository, session) == sent
    with engine.connect() as connection:
        assert connection.execute(select(blobs.c.data)).scalars().all() == [image]
        kept = connection.execute(select(func.sum(func.length(bodies.c.data)))).scalar_one()
    assert kept < len(image)
    assert list(repository.verify()) == []


TOOLS = b'],"tools":[' + b'{"type":"function","name":"bash"},' * 20 + b'],"stream":true}'


def test_what_stands_behind_the_messages_is_stored_once(writer: Writer, engine: Engine, repository: Repository) -> None:
    """As most harnesses write it. Also when the tools change between two calls, and back."""
    turns = [HISTORY + b'{"turn":%d},' * number % tuple(range(number)) for number in range(6)]
    sent = [turn + TOOLS for turn in turns]
    sent.insert(3, turns[3] + TOOLS.replace(b"bash", b"edit"))
    write(writer, *sent)
    assert [len(stored(engine, body)) < 30 for body in sent] == [False, True, True, False, False, True, True]
    assert read(repository) == sent
    assert list(repository.verify()) == []


def test_an_image_before_a_shared_end_is_taken_out_whole(
    writer: Writer, engine: Engine, repository: Repository
) -> None:
    """Whatever its last characters are: they may be those of the text that stood in its place."""
    image = bytes(range(256)) * 40
    sent = [HISTORY + b'"%b"' % text + TOOLS for text in (b"as it were " + b64encode(image)[-9:], b64encode(image))]
    write(writer, *sent)
    with engine.connect() as connection:
        assert connection.execute(select(blobs.c.data)).scalars().all() == [image]
    assert read(repository) == sent


PIECES = st.lists(st.sampled_from([b'"', b"a", b'","role":"user"', b"\0", b"x" * 70]), max_size=8).map(b"".join)


@given(PIECES, PIECES, PIECES, st.integers(0, 200), st.integers(0, 200))
def test_a_shared_end_is_one(left: bytes, right: bytes, end: bytes, guess: int, most: int) -> None:
    """Nearly as long as it can be, whatever is guessed."""
    left, right = left + end, right + end
    most = min(most, len(left), len(right))
    shared = shared_tail(left, right, most, guess)
    assert 0 <= shared <= most
    assert left[len(left) - shared :] == right[len(right) - shared :]
    assert not shared or guess == shared or right[len(right) - shared :].startswith(b'"')
    assert shared_tail(left, right, most) - shared < 16


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(-3, 50))
def test_a_guess_changes_nothing(left: bytes, right: bytes, guess: int) -> None:
    assert shared_bytes(left, right, guess) == shared_bytes(left, right)
