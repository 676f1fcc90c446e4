"""The demo's tasks and their verifier."""

import pytest

from polarproxy.rollout.calculator import TASKS, CalculatorTask, total, verify

TASK = CalculatorTask("t", "What is 6*7?", "42")


def scores(final_text: str) -> dict[str, float]:
    return {component.name: component.value for component in verify(TASK, final_text)}


def test_there_are_at_least_eight_tasks_with_ids_of_their_own() -> None:
    assert len(TASKS) >= 8
    assert len({task.task_id for task in TASKS}) == len(TASKS)
    assert len({task.instruction for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.task_id)
def test_the_expected_answer_earns_everything(task: CalculatorTask) -> None:
    assert total(verify(task, task.expected)) == 1.0
    assert total(verify(task, str(int(task.expected) + 1))) < 0.5


@pytest.mark.parametrize(
    ("text", "correct", "form"),
    [
        ("42", 1.0, 1.0),
        ("  42.0 \n", 1.0, 1.0),
        ("calculator 6*7 -> 42\n42", 1.0, 1.0),
        ("The answer is 42.", 1.0, 0.0),
        ("6 times 7 is 42", 1.0, 0.0),
        ("42 is not 43", 0.0, 0.0),
        ("42\n43", 0.0, 1.0),
        ("-42", 0.0, 1.0),
        ("420", 0.0, 1.0),
        ("42.5", 0.0, 1.0),
        ("4 2", 0.0, 0.0),
        ("forty-two", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("\n \n", 0.0, 0.0),
    ],
)
def test_only_the_last_line_counts(text: str, correct: float, form: float) -> None:
    assert scores(text) == {"correct": correct, "format": form}


def test_the_total_weighs_correctness_above_form() -> None:
    assert total(verify(TASK, "The answer is 42.")) == pytest.approx(0.8)
    assert total(verify(TASK, "41")) == pytest.approx(0.2)
