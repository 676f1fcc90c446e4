"""What the processes of one database know of each other."""

from sqlalchemy import Engine

from polarproxy.store.roster import Roster, UpstreamState
from tests.database import ON_POSTGRESQL

pytestmark = ON_POSTGRESQL


def age(engine: Engine, proxy_id: str) -> None:
    """As if it had not told of itself for a minute."""
    with engine.begin() as connection:
        set_back = "UPDATE proxies SET seen_at = seen_at - interval '1 minute' WHERE proxy_id = %(me)s"
        connection.exec_driver_sql(set_back, {"me": proxy_id})


def test_each_hears_what_the_others_said_last(engine: Engine) -> None:
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    assert first.join("one").others == ()
    assert second.join("two").others == ("one",)
    first.tell("one again", {})
    assert second.tell("two", {}).others == ("one again",)
    assert first.tell("one", {}).others == ("two",)
    second.leave()
    assert first.tell("one", {}).others == ()


def test_who_is_silent_is_not_counted_until_it_speaks_again(engine: Engine) -> None:
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    first.join("one")
    second.join("two")
    age(engine, "p2")
    assert first.tell("one", {}).others == ()
    second.tell("two", {})
    assert first.tell("one", {}).others == ("two",)


def test_a_change_is_seen_by_all_and_the_last_one_counts(engine: Engine) -> None:
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    first.join("")
    first.change("http://b", UpstreamState.ACTIVE)
    first.change("http://a", UpstreamState.DRAINING)
    assert second.join("").changes == {"http://a": UpstreamState.DRAINING, "http://b": UpstreamState.ACTIVE}
    second.change("http://a", UpstreamState.CUT)
    assert list(first.tell("", {}).changes.items()) == [
        ("http://a", UpstreamState.CUT),
        ("http://b", UpstreamState.ACTIVE),
    ]


def test_changes_last_as_long_as_somebody_lives(engine: Engine) -> None:
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    first.join("")
    first.change("http://a", UpstreamState.REMOVED)
    second.join("")
    first.leave()
    assert second.tell("", {}).changes.keys() == {"http://a"}
    # It was killed, and its place is taken by another one before it can be told from a living one.
    assert Roster(engine, "p3").join("").changes.keys() == {"http://a"}
    for gone in ("p2", "p3"):
        age(engine, gone)
    assert Roster(engine, "p4").join("").changes == {}


def test_who_was_taken_for_dead_brings_its_changes_back(engine: Engine) -> None:
    """After an outage a newcomer may be the first to come, and finds nobody alive."""
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    first.join("")
    second.join("")
    for name in "abc":
        first.change(f"http://{name}", UpstreamState.DRAINING)
    known = second.tell("", {}).changes
    for silent in ("p1", "p2"):
        age(engine, silent)
    newcomer = Roster(engine, "p3")
    assert newcomer.join("").changes == {}
    # What is decided after the outage is newer than what is brought back.
    newcomer.change("http://b", UpstreamState.ACTIVE)
    wanted = {**known, "http://b": UpstreamState.ACTIVE}
    assert first.tell("", known).changes == wanted
    assert newcomer.tell("", {}).changes == wanted
    assert second.tell("", known).changes == wanted


def test_who_was_not_taken_for_dead_hears_what_holds_and_brings_nothing(engine: Engine) -> None:
    """Its own knowledge is as old as its latest question."""
    first, second = Roster(engine, "p1"), Roster(engine, "p2")
    first.join("")
    second.join("")
    age(engine, "p1")
    assert first.tell("", {"http://old": UpstreamState.CUT}).changes == {}
