"""The demo's tasks: arithmetic word problems with an exact answer, and the verifier that scores a final answer."""

import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class CalculatorTask:
    """One word problem; `expected` is the only right answer, as a decimal number."""

    task_id: str
    instruction: str
    expected: str


@dataclass(frozen=True)
class Component:
    """One named part of a reward; the total is the sum of value times weight."""

    name: str
    value: float
    weight: float


TASKS = (
    CalculatorTask("gather", "Mia has 47 shells and buys 38 more. How many shells does Mia have now?", "85"),
    CalculatorTask("give", "Otto had 83 coins and gave away 26. How many coins are left?", "57"),
    CalculatorTask("boxes", "There are 24 boxes with 16 pens in each box. How many pens are there?", "384"),
    CalculatorTask("share", "Vera shares 96 stamps among 8 friends. How many stamps does each friend get?", "12"),
    CalculatorTask(
        "boxes-give",
        "Jack fills 14 boxes with 12 eggs each and gives away 35 eggs. How many eggs are left?",
        "133",
    ),
    CalculatorTask(
        "bags-find",
        "Nora has 18 bags with 9 marbles each and finds 27 more. How many marbles are there in all?",
        "189",
    ),
    CalculatorTask(
        "split-buy",
        "Kim and friends split 72 cards into 6 equal parts. Kim takes one and buys 19 more. "
        "How many cards does Kim have?",
        "31",
    ),
    CalculatorTask(
        "prices",
        "A pack of roses costs 13 dollars and a bag costs 28 dollars. Leo buys 7 of each. What is the cost?",
        "287",
    ),
)


def verify(task: CalculatorTask, final_text: str) -> tuple[Component, ...]:
    """`correct`: 1 if the last number of the last line equals the expected one. `format`: 1 if that line is nothing
    but a number. `final_text` is the harness's output or its last part; empty text scores 0 in both."""
    lines = final_text.strip().splitlines()
    last = lines[-1].strip() if lines else ""
    numbers = NUMBER.findall(last)
    right = bool(numbers) and Decimal(numbers[-1]) == Decimal(task.expected)
    return (
        Component("correct", float(right), 0.8),
        Component("format", float(NUMBER.fullmatch(last) is not None), 0.2),
    )


def total(components: tuple[Component, ...]) -> float:
    """The weighted sum of the components, from 0 to 1."""
    return sum(component.value * component.weight for component in components)
