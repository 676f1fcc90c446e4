"""Synthetic calculator dialogues for the demo model: word tasks, tool calls, and mistakes at known rates.

The demo needs a policy that is right often but not always, so that groups of samples have a spread of rewards.
Rather than stop training early, which is hard to repeat, the dialogues themselves hold mistakes at a chosen rate
per kind of task; a model that fits them then errs at about that rate when sampled at temperature 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random

NAMES = (
    "Ann", "Ben", "Carla", "Dan", "Eva", "Finn", "Gina", "Hugo", "Iris", "Jack",
    "Kim", "Leo", "Mia", "Nora", "Otto", "Paul", "Rosa", "Sam", "Tina", "Vera",
)  # fmt: skip
ITEMS = (
    "apples", "pens", "books", "cards", "coins", "eggs", "stamps", "marbles", "cookies", "shells",
    "stickers", "pears", "roses", "plums", "beads", "cups",
)  # fmt: skip
SYSTEM = "Solve the task with the calculator. End with the number alone."
TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Evaluate an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}


@dataclass(frozen=True)
class Step:
    """One arithmetic step; an operand of None stands for the result of the step before."""

    left: int | None
    operator: str
    right: int


@dataclass(frozen=True)
class Problem:
    """A word task with its solution; `p_right` is how often its dialogues are solved without a planted mistake."""

    text: str
    steps: tuple[Step, ...]
    p_right: float


@dataclass(frozen=True)
class Turn:
    """One assistant turn: a tool call (`expression`, and what the tool answers) or the closing words (`text`)."""

    expression: str | None
    result: str | None
    text: str | None


def show(value: Fraction) -> str:
    """A number as the calculator prints it: whole numbers plainly, others with at most two decimals."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}".rstrip("0").rstrip(".")


def apply(left: Fraction, operator: str, right: int) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right


def _gather(rng: Random, name: str, item: str) -> Problem:
    x, y = rng.randint(2, 99), rng.randint(2, 99)
    text = f"{name} has {x} {item} and buys {y} more. How many {item} does {name} have now?"
    return Problem(text, (Step(x, "+", y),), 0.6)


def _give(rng: Random, name: str, item: str) -> Problem:
    x = rng.randint(12, 99)
    y = rng.randint(2, x - 2)
    text = f"{name} had {x} {item} and gave away {y}. How many {item} are left?"
    return Problem(text, (Step(x, "-", y),), 0.6)


def _boxes(rng: Random, name: str, item: str) -> Problem:
    x, y = rng.randint(2, 60), rng.randint(2, 40)
    text = f"There are {x} boxes with {y} {item} in each box. How many {item} are there?"
    return Problem(text, (Step(x, "*", y),), 0.55)


def _share(rng: Random, name: str, item: str) -> Problem:
    y, each = rng.randint(2, 12), rng.randint(2, 30)
    text = f"{name} shares {y * each} {item} among {y} friends. How many {item} does each friend get?"
    return Problem(text, (Step(y * each, "/", y),), 0.55)


def _boxes_give(rng: Random, name: str, item: str) -> Problem:
    x, y = rng.randint(3, 40), rng.randint(4, 30)
    z = rng.randint(2, min(99, x * y - 2))
    text = f"{name} fills {x} boxes with {y} {item} each and gives away {z} {item}. How many {item} are left?"
    return Problem(text, (Step(x, "*", y), Step(None, "-", z)), 0.5)


def _boxes_gather(rng: Random, name: str, item: str) -> Problem:
    x, y, z = rng.randint(3, 40), rng.randint(4, 30), rng.randint(2, 99)
    text = f"{name} has {x} bags with {y} {item} each and finds {z} more. How many {item} are there in all?"
    return Problem(text, (Step(x, "*", y), Step(None, "+", z)), 0.55)


def _share_gather(rng: Random, name: str, item: str) -> Problem:
    y, each, z = rng.randint(2, 12), rng.randint(2, 30), rng.randint(2, 60)
    text = f"{name} and friends split {y * each} {item} into {y} equal parts. {name} takes one and buys {z} more. "
    return Problem(text + f"How many {item} does {name} have?", (Step(y * each, "/", y), Step(None, "+", z)), 0.5)


def _prices(rng: Random, name: str, item: str) -> Problem:
    x, y, n = rng.randint(2, 60), rng.randint(2, 60), rng.randint(2, 20)
    text = f"A pack of {item} costs {x} dollars and a bag costs {y} dollars. {name} buys {n} of each. What is the cost?"
    return Problem(text, (Step(x, "+", y), Step(None, "*", n)), 0.45)


KINDS: tuple[Callable[[Random, str, str], Problem], ...] = (
    _gather, _give, _boxes, _share, _boxes_give, _boxes_gather, _share_gather, _prices,
)  # fmt: skip


def problem(rng: Random) -> Problem:
    """A random task of a random kind."""
    return rng.choice(KINDS)(rng, rng.choice(NAMES), rng.choice(ITEMS))


def _slip(rng: Random, number: int) -> int:
    """The number with its last digit misread."""
    return number - number % 10 + (number % 10 + rng.randint(1, 9)) % 10 or 1


def _with_mistake(rng: Random, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with one thing wrong: an operator, a number, or a missing second step."""
    spot = rng.randrange(len(steps))
    wrong = steps[spot]
    draw = rng.random()
    if len(steps) > 1 and draw < 0.3:
        return steps[:1]
    if draw < 0.7:
        wrong = Step(wrong.left, rng.choice([o for o in "+-*/" if o != wrong.operator]), wrong.right)
    else:
        wrong = Step(wrong.left, wrong.operator, _slip(rng, wrong.right))
    return (*steps[:spot], wrong, *steps[spot + 1 :])


def _in_one_call(steps: tuple[Step, ...]) -> tuple[str, Fraction]:
    """All steps as one expression, the first in parentheses where precedence asks for them."""
    first, *rest = steps
    assert first.left is not None
    text, value = f"{first.left}{first.operator}{first.right}", apply(Fraction(first.left), first.operator, first.right)
    for step in rest:
        if step.operator in "*/" and first.operator in "+-":
            text = f"({text})"
        text, value = f"{text}{step.operator}{step.right}", apply(value, step.operator, step.right)
    return text, value


def solution(rng: Random, task: Problem) -> list[Turn]:
    """Assistant turns for the task: one call per step or all in one, mistakes and loose endings at their rates."""
    right = rng.random() < task.p_right
    steps = task.steps if right else _with_mistake(rng, task.steps)
    turns: list[Turn] = []
    if len(steps) > 1 and rng.random() < 0.3:
        expression, value = _in_one_call(steps)
        turns.append(Turn(expression, show(value), None))
    else:
        value = Fraction(0)
        for step in steps:
            # The next call can only use what the calculator printed, so rounding carries over.
            left = Fraction(step.left) if step.left is not None else Fraction(turns[-1].result or "0")
            value = apply(left, step.operator, step.right)
            turns.append(Turn(f"{show(left)}{step.operator}{step.right}", show(value), None))
    answer = show(value)
    turns.append(Turn(None, None, answer if rng.random() < 0.75 else f"The answer is {answer}."))
    return turns
