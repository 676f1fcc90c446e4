"""What is said of files that their authors got wrong."""

from enum import StrEnum
from typing import Literal

import msgspec
import pytest

from polarproxy.model.explaining import explained


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Small(msgspec.Struct, forbid_unknown_fields=True, tag="small"):
    size: int = 0


class Large(msgspec.Struct, forbid_unknown_fields=True, tag="large"):
    weight: int = 0
    colour: Colour = Colour.RED


class Box(msgspec.Struct, forbid_unknown_fields=True):
    things: tuple[Small | Large, ...] = ()
    named: dict[str, list[Large]] = {}
    how: Literal["well", "badly"] | None = None
    inner: "Box | None" = None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"thing": []}, "Object contains unknown field `thing`; did you mean `things`?"),
        ({"inner": {"inner": {"nam": 1}}}, "at `$.inner.inner`; did you mean `named`?"),
        ({"things": [{"type": "small"}, {"type": "large", "wight": 1}]}, "at `$.things[1]`; did you mean `weight`?"),
        ({"named": {"a.b": [{"type": "large", "color": 1}]}}, "did you mean `colour`?"),
        ({"things": [{"type": "huge"}]}, "it is one of small, large"),
        ({"things": [{"type": "large", "colour": "green"}]}, "it is one of red, blue"),
        ({"how": "so"}, "it is one of badly, well"),
        ({"how": 1}, "Expected `str | null`, got `int` - at `$.how`"),
        ({"things": {}}, "Expected `array`, got `object` - at `$.things`"),
    ],
)
def test_what_would_be_right_is_said(given: object, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Box)
    assert said in explained(raised.value, Box)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "Object contains unknown field `", "Invalid value - at `$`", " - at `$.x[`"]
)
def test_any_other_text_stays(text: str) -> None:
    assert explained(ValueError(text), Box) == text
