"""Chat templates in a few lines, one for each way in which templates differ where turns end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine.exact.template import TemplateFacts
from tests.engine.exact.proxying import Proxy
from tests.fakes.rendering.renderer import probed, toy

if TYPE_CHECKING:
    from polarproxy.engine.exact.template import Refused
    from tests.fakes.rendering.renderer import Templated

MARKS = ("<s>", "<e>", "<x>", "<c>", "<call>", "</call>")
PROMPT = "{% if add_generation_prompt %}<s>assistant:{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}"


def looped(turn: str, before: str = "", after: str = PROMPT) -> str:
    """A template that writes each message `m` alike."""
    return before + "{% for m in messages %}" + turn + "{% endfor %}" + after


PLAIN = looped("<s>{{ m.role }}:{{ m.content }}" + CALLS + "<e>\n")
TEMPLATES = {
    "plain": PLAIN,
    "tool list in front": "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + PLAIN,
    "numbered turns": looped("<s>{{ loop.index }} {{ m.role }}:{{ m.content }}" + CALLS + "<e>\n"),
    "numbered turns, from the end": looped("<s>{{ loop.revindex }} {{ m.role }}:{{ m.content }}" + CALLS + "<e>\n"),
    "length in front": "{{ messages | length }} messages\n" + PLAIN,
    "tools before the last question": looped(
        "{% if m.role == 'user' and messages[loop.index0:] | selectattr('role', 'equalto', 'user') | list | length == 1 %}"
        "{{ tools | tojson }}{% endif %}<s>{{ m.role }}:{{ m.content }}" + CALLS + "<e>\n"
    ),
    "system in front": looped(
        "{% if m.role != 'system' %}<s>{{ m.role }}:{{ m.content }}" + CALLS + "<e>\n{% endif %}",
        "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}",
    ),
    "ids of calls": looped(
        "<s>{{ m.role }}{% if m.tool_call_id %}[{{ m.tool_call_id }}]{% endif %}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.id }} {{ c.function.name }}</call>{{ c.function.arguments | tojson }}"
        "{% endfor %}<e>\n"
    ),
    "calls end otherwise": looped(
        "<s>{{ m.role }}:{{ m.content }}" + CALLS + "{% if m.tool_calls %}<c>{% else %}<e>{% endif %}\n"
    ),
    "calls are not shown": looped("<s>{{ m.role }}:{{ m.content }}<e>\n"),
    "no tools at all": looped(
        "{% if m.role == 'tool' or m.tool_calls %}{{ raise_exception('no tools') }}{% endif %}"
        "<s>{{ m.role }}:{{ m.content }}<e>\n"
    ),
    "a space before the end": looped("<s>{{ m.role }}:{{ m.content }}" + CALLS + " <e>\n"),
    "words for marks": looped("{{ m.role }}: {{ m.content }}" + CALLS + "\n", after="assistant: "),
    "a header before the text": looped(
        "<s>{{ m.role }}{% if m.role == 'assistant' %}<x>{% endif %}:{{ m.content }}" + CALLS + "<e>\n",
        after="{% if add_generation_prompt %}<s>assistant{% endif %}",
    ),
    "the assistant is not shown": looped(
        "{% if m.role != 'assistant' %}<s>{{ m.role }}:{{ m.content }}<e>\n{% endif %}"
    ),
    "nothing is shown": "<s>",
    "a hidden turn is marked in front": looped(
        "{% if m.role != 'assistant' %}<s>{{ m.role }}:{{ m.content }}<e>\n{% endif %}",
        "{% for m in messages if m.content == 'quick' %}!{% endfor %}",
    ),
    "several calls are numbered": looped(
        "<s>{{ m.role }}:{{ m.content }}"
        + CALLS
        + "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ loop.index }}{% endif %}<e>\n"
    ),
}


def facts_of(template: str, *, tools: bool = False) -> TemplateFacts | Refused:
    given = {"tools": msgspec.Raw(b'[{"type":"function","function":{"name":"f"}}]')} if tools else {}
    return probed(toy(template, MARKS), given)


def proxy_of(template: str, *, tools: bool = False) -> tuple[Templated, Proxy]:
    """A session in exact mode over a toy template."""
    renderer = toy(template, MARKS)
    facts = facts_of(template, tools=tools)
    assert isinstance(facts, TemplateFacts)
    return renderer, Proxy(renderer, facts)
