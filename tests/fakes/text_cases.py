"""As `tests.fakes.cases`, for `/v1/completions`."""

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.cases import CONTINUOUS, GREEDY, USAGE, Body, Case

COMPLETIONS = "/v1/completions"
TEXT_IDS: Body = {"return_token_ids": True, "logprobs": 0}


def prompt_of(text: str) -> str:
    """What the chat template makes of one question."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class TextAsk:
    """A base case, and the maker of its variants."""

    name: str
    prompt: str | list[Any]
    extra: Body = field(default_factory=dict)

    def case(self, name: str | None = None, *, ids: bool = True, only: bool | None = None, **more: Any) -> Case:
        body = {**GREEDY, "prompt": self.prompt, "max_tokens": 64} | (TEXT_IDS if ids else {}) | self.extra | more
        return Case(name or self.name, body, self.name, only)


HELLO = TextAsk("hello", prompt_of("hi"))
SYMBOLS = TextAsk("symbols", prompt_of("Write an emoji."))
PAIR = TextAsk(
    "pair", prompt_of("What is 2+2?"), {"n": 2, "temperature": 2, "top_p": 1, "top_k": 0, "seed": 7, "max_tokens": 16}
)
LIKELY = TextAsk("likely", prompt_of("Count to ten."), {"logprobs": 3, "max_tokens": 8})
ECHO = TextAsk("echo", prompt_of("hi"), {"echo": True, "logprobs": 2, "max_tokens": 5})
IDS_ECHO = TextAsk("ids_echo", [9707, 11, 1879, 0], {"echo": True, "max_tokens": 6})
SEVERAL = TextAsk("several", ["Hello", "What"], {"n": 2, "temperature": 1, "seed": 5, "max_tokens": 4})

TEXT_BASE = (HELLO, SYMBOLS, PAIR, LIKELY, ECHO, IDS_ECHO, SEVERAL)

TEXT_ANSWERS = (
    *(ask.case() for ask in TEXT_BASE),
    HELLO.case("hello_plain", ids=False),
    HELLO.case("hello_ids_only", ids=False, return_token_ids=True),
    HELLO.case("hello_logprobs_only", ids=False, logprobs=0),
    HELLO.case("hello_in_a_list", prompt=[HELLO.prompt]),
    HELLO.case("hello_as_token_ids", return_tokens_as_token_ids=True),
    HELLO.case("hello_usage", only=True, **USAGE),
    HELLO.case("hello_continuous", only=True, **CONTINUOUS),
    HELLO.case("hello_stop", stop=["help you"]),
    HELLO.case("hello_stop_plain", ids=False, stop=["help you"]),
    HELLO.case("hello_stop_token", stop_token_ids=[2585]),
    HELLO.case("hello_cut", max_tokens=5),
    HELLO.case("hello_cut_plain", ids=False, max_tokens=5),
    SYMBOLS.case("symbols_plain", ids=False),
    PAIR.case("pair_plain", ids=False),
    PAIR.case("pair_usage", only=True, **USAGE),
    LIKELY.case("likely_logprobs_only", return_token_ids=False),
    ECHO.case("echo_plain", ids=False, logprobs=None),
    ECHO.case("echo_ids_only", logprobs=None),
    ECHO.case("echo_logprobs_only", ids=False),
    ECHO.case("echo_chosen", logprobs=0),
    ECHO.case("echo_chosen_only", ids=False, logprobs=0),
    ECHO.case("echo_of_nothing", ids=False, logprobs=None, max_tokens=0),
    ECHO.case("echo_of_nothing_all", max_tokens=0),
    PAIR.case("pair_echo_plain", ids=False, echo=True),
    IDS_ECHO.case("ids_echo_plain", ids=False),
    IDS_ECHO.case("ids_echo_logprobs_only", ids=False, logprobs=0),
    IDS_ECHO.case("ids_alone", echo=False),
    IDS_ECHO.case("ids_alone_plain", ids=False, echo=False),
    SEVERAL.case("several_plain", ids=False),
    SEVERAL.case("several_usage", only=True, **USAGE),
)

TEXT_ERRORS = (
    Case("no_prompt", {"model": "tiny"}),
    Case("empty_prompt", {"model": "tiny", "prompt": ""}),
    Case("no_prompts", {"model": "tiny", "prompt": []}),
    Case("prompt_without_ids", {"model": "tiny", "prompt": [[]]}),
    Case("overflow", {**GREEDY, "prompt": "word " * 2100}),
    Case("unknown_model", {"model": "nope", "prompt": "hi"}),
    Case("max_tokens", {**GREEDY, "prompt": "hi", "max_tokens": 3000}),
    Case("no_tokens", {**GREEDY, "prompt": "hi", "max_tokens": 0}),
    Case("no_choices", {**GREEDY, "prompt": "hi", "n": 0}),
    Case("negative_logprobs", {**GREEDY, "prompt": "hi", "logprobs": -2}),
    Case("too_many_logprobs", {**GREEDY, "prompt": "hi", "logprobs": 25}),
    Case("options_without_stream", {**GREEDY, "prompt": "hi", **USAGE}, only=False),
)

TEXT_CASES = (*TEXT_ANSWERS, *TEXT_ERRORS)
