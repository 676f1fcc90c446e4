from polarproxy.wire.neutral.joining import joined
from polarproxy.wire.neutral.request import Message, Text, ToolResult


def result(own: str) -> Message:
    return Message("tool", (ToolResult(own, ()),))


def test_only_neighbours_of_the_roles_are_one() -> None:
    hi = Message("user", (Text("hi"),))
    told = joined([hi, hi, result("a"), result("b"), hi, result("c")], ("tool",))
    assert told == (hi, hi, Message("tool", (*result("a").parts, *result("b").parts)), hi, result("c"))


def test_many_messages_are_joined() -> None:
    (whole,) = joined((result(str(place)) for place in range(200_000)), ("tool",))
    assert len(whole.parts) == 200_000
