"""What harnesses do, played on a tokenizer: calls as they would be recorded, and what each does to its history.

A played session has agents that ask in turns: plain turns, reasoning, parallel tools, sub-agents that share the parent's
head, titles, compactions, edits, retries with and without a sign that the first try was lost, replies that were cut and
then gone on from, several choices, other system prompts, tools and nonces, and clocks that run backwards. The engine
renders every prompt from text, as real ones do, so sampled tokens come back only where their text has no other spelling.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from polarproxy.model import CallKind, CallStatus, CapturedCall, FinishReason
from polarproxy.trajectory.symptoms import DriftClass
from tests.trajectory.build import Said, call
from tests.trajectory.tongues import Tongue

END = "<|im_end|>"
BEGIN = "<|im_start|>assistant\n"
MOST_STEPS = 7
TEAMS = ("printers", "bakers", "weavers")
"""In words: where nothing but a digit differs first, the difference is a nonce."""
SOME_CLASS = "some class"
"""Several things were done to a history at once: it drifts, and which of them shows first does not matter."""

Expected = DriftClass | str | None


@dataclass(frozen=True, repr=False)
class Played:
    """The calls of a session by arrival, and what is to be found about their prompts."""

    calls: list[CapturedCall]
    expected: dict[str, Expected]
    """By call, how its prompt differs from what it repeats. None: it repeats it exactly, or nothing."""
    texts: dict[int, bytes]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis, whose own way takes pages."""
        printer.text("\n".join(["played:", *(self._told(captured) for captured in self.calls)]))

    def _told(self, captured: CapturedCall) -> str:
        call = captured.call
        prompt = self._spelled(call.prompt_token_ids or ())
        said = [self._spelled(completion.token_ids) for completion in call.completions]
        expected = self.expected.get(call.call_id)
        return f"{call.call_id} {captured.kind} {call.status} expected {expected}: …{prompt[-300:]!r} -> {said}"

    def _spelled(self, ids: Iterable[int]) -> str:
        return b"".join(self.texts[token] for token in ids).decode(errors="replace")


@dataclass
class Agent:
    """A conversation as its harness keeps it."""

    name: int
    kind: CallKind
    nonce: int = 1000
    rules: str = "Be careful and brief."
    tools: tuple[str, ...] = ("bash",)
    history: list[tuple[str, str]] = field(default_factory=list)
    """Role and text of each message."""
    done: set[DriftClass] = field(default_factory=set)
    """What was done to the history since the last call."""

    def prompt(self) -> str:
        system = f"{self.rules} Build {self.nonce}. Tools: {', '.join(self.tools)}."
        told = [("system", system), *self.history]
        return "".join(f"<|im_start|>{role}\n{text}{END}\n" for role, text in told) + BEGIN

    @property
    def replies(self) -> list[int]:
        return [place for place, (role, _) in enumerate(self.history) if role == "assistant"]


class Play:
    """One session in the making."""

    def __init__(self, draw: st.DrawFn, speak: Tongue) -> None:
        self.draw, self.speak = draw, speak
        self.agents = [Agent(0, CallKind.MAIN)]
        self.calls: list[CapturedCall] = []
        self.expected: dict[str, Expected] = {}
        self.ordinal = -1

    def one_of(self, *choices: object) -> object:
        return self.draw(st.sampled_from(choices))

    def record(
        self,
        agent: Agent,
        replies: Sequence[Sequence[int]],
        *,
        prompt: str | None = None,
        kind: CallKind | None = None,
        lost: bool = False,
        finish: FinishReason | None = FinishReason.STOP,
    ) -> str:
        """The engine has answered; returns the call's id."""
        self.ordinal += self.draw(st.integers(1, 2))
        said = [Said(ids, index=index, finish=None if lost else finish) for index, ids in enumerate(replies)]
        status = CallStatus.ABORTED if lost else CallStatus.COMPLETED
        made = call(self.ordinal, self.speak.encode(prompt or agent.prompt()), *said, status=status)
        made = replace(
            made,
            tools_digest=" ".join(agent.tools),
            arrived_at=made.arrived_at + timedelta(seconds=self.draw(st.integers(-9, 9))),
        )
        self.calls.append(CapturedCall(made, not lost, kind or agent.kind))
        return made.call_id

    def ask(self, agent: Agent) -> None:
        """The next turn of an agent, with whatever goes wrong on the way."""
        if not agent.history or agent.history[-1][0] == "assistant":
            agent.history.append(("user", f"Question {self.ordinal} of agent {agent.name}: what is in src?"))
        reply = self.reply(agent)
        ids = self.speak.encode(reply + END)
        odd = [*self.speak.odd(reply), *self.speak.encode(END)]
        if self.one_of(False, False, True) and odd != ids:
            ids, comes_back = odd, {DriftClass.RETOKENIZED}
        else:
            comes_back = set()
        expected = self.expectation(agent)
        trouble = self.one_of("none", "none", "none", "lost", "again", "cut", "choices")
        if trouble == "lost":
            part = self.draw(st.integers(0, 5))
            self.expected[self.record(agent, [ids[:part]], lost=True)] = expected
            expected = None
        if trouble == "again":
            self.expected[self.record(agent, [self.speak.encode("Never mind, I will not do that." + END)])] = expected
            expected = None
        if trouble == "cut":
            reply, ids, comes_back = "I will look into", self.speak.encode("I will look into"), set()
            self.expected[self.record(agent, [ids], lost=True)] = expected
        elif trouble == "choices":
            other = self.speak.encode(f"Another answer to question {self.ordinal}." + END)
            picked = [ids, other] if self.one_of(False, True) else [other, ids]
            self.expected[self.record(agent, picked)] = expected
        else:
            self.expected[self.record(agent, [ids])] = expected
        agent.history.append(("assistant", reply))
        agent.done = comes_back
        if "<tool_call>" in reply:
            for number in range(reply.count("<tool_call>")):
                agent.history.append(("tool", f"Result {number} of call {self.ordinal}: three files."))

    def expectation(self, agent: Agent) -> Expected:
        if len(agent.done) > 1:
            return SOME_CLASS
        return next(iter(agent.done), None)

    def reply(self, agent: Agent) -> str:
        say = f"There are {self.ordinal + 20} files in src, says agent {agent.name}, and none is empty."
        match self.one_of("plain", "plain", "think", "tools"):
            case "think":
                return f"<think>\nI counted them for turn {self.ordinal}, twice.\n</think>\n\n{say}"
            case "tools":
                count = self.draw(st.integers(1, 3))
                command = '{{"name":"bash", "arguments":{{"path":"src/{}", "depth":{}}}}}'
                made = [command.format(self.ordinal, number) for number in range(count)]
                return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in made)
        return say

    def alter(self, agent: Agent) -> None:
        """Something is done to the history before the next turn."""
        if not agent.replies:
            return
        last = agent.replies[-1]
        text = agent.history[last][1]
        match self.one_of(*DriftClass):
            case DriftClass.THINKING_STRIPPED if any("<think>" in agent.history[place][1] for place in agent.replies):
                told = [(role, said.split("</think>\n\n")[-1]) for role, said in agent.history]
                agent.history = told
                agent.done.add(DriftClass.THINKING_STRIPPED)
            case DriftClass.ARGUMENTS_RESERIALIZED if text.startswith("<tool_call>"):
                bodies = [part.split("\n</tool_call>")[0] for part in text.split("<tool_call>\n")[1:]]
                written = [f"<tool_call>\n{json.dumps(json.loads(body))}\n</tool_call>" for body in bodies]
                agent.history[last] = ("assistant", "\n".join(written))
                agent.done.add(DriftClass.ARGUMENTS_RESERIALIZED)
            case DriftClass.EDITED if text.startswith("There are"):
                agent.history[last] = ("assistant", text.replace("There are", "I do see"))
                agent.done.add(DriftClass.EDITED)
            case DriftClass.TRUNCATED if text.startswith("There are"):
                agent.history[last] = ("assistant", text.split(", and")[0])
                agent.done.add(DriftClass.TRUNCATED)
            case DriftClass.NONCE:
                agent.nonce += 1
                agent.done.add(DriftClass.NONCE)
            case DriftClass.SYSTEM_CHANGED:
                agent.rules = f"You work for {TEAMS[agent.name]} now, and say so {'very ' * len(self.calls)}often."
                agent.done.add(DriftClass.SYSTEM_CHANGED)
            case DriftClass.TOOLS_CHANGED:
                agent.tools = (*agent.tools, f"tool_{'x' * len(agent.tools)}")
                agent.done.add(DriftClass.TOOLS_CHANGED)
            case DriftClass.COMPACTED:
                self.compact(agent)

    def compact(self, agent: Agent) -> None:
        summary = f"Agent {agent.name} was asked to count the files in src, and had counted {self.ordinal} of them."
        asked = replace(agent, history=[*agent.history, ("user", "Summarise all this.")])
        self.record(asked, [self.speak.encode(summary + END)], kind=CallKind.COMPACTION)
        kept = agent.history[agent.replies[-1] :] if self.one_of(False, True) else []
        agent.history = [("user", f"What was done so far: {summary} Now go on."), *kept]
        agent.done = {DriftClass.COMPACTED}

    def title(self, agent: Agent) -> None:
        prompt = f"<|im_start|>system\nWrite a title.{END}\n<|im_start|>user\nAgent {agent.name}{END}\n{BEGIN}"
        self.record(agent, [self.speak.encode("Counting files" + END)], prompt=prompt, kind=CallKind.TITLE)

    def step(self) -> None:
        agent = self.draw(st.sampled_from(self.agents))
        match self.one_of("ask", "ask", "ask", "alter", "alter", "spawn", "title"):
            case "spawn" if len(self.agents) < 3:
                self.agents.append(Agent(len(self.agents), CallKind.SUBAGENT, agent.nonce, agent.rules, agent.tools))
                self.ask(self.agents[-1])
            case "title":
                self.title(agent)
            case "alter":
                self.alter(agent)
                self.ask(agent)
            case _:
                self.ask(agent)


@st.composite
def behaviours(draw: st.DrawFn, speak: Tongue) -> Played:
    """A session of some harness."""
    play = Play(draw, speak)
    for _ in range(draw(st.integers(1, MOST_STEPS))):
        play.step()
    prompts = [captured.call.prompt_token_ids or () for captured in play.calls]
    sampled = [completion.token_ids for captured in play.calls for completion in captured.call.completions]
    return Played(play.calls, play.expected, speak.texts(*prompts, *sampled))
