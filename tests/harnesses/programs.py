"""The scenes that are recorded of each coding agent: the parts of its behaviour that give requests their shapes."""

import json
from dataclasses import replace

from tests.fakes import Turn
from tests.harnesses import test_claude_code as claude_code
from tests.harnesses import test_codex as codex_cli
from tests.harnesses import test_gemini_cli as gemini_cli
from tests.harnesses import test_mini_swe_agent as mini_swe_agent
from tests.harnesses import test_opencode as opencode_cli
from tests.harnesses import test_qwen_code as qwen_code
from tests.harnesses.scenes import (
    ASK_SUB,
    COMMAND,
    DONE,
    FINISH,
    HEARD,
    LATER,
    LOOK,
    MADE,
    NOTHING,
    ON,
    PICTURE,
    PONG,
    PROMPT,
    PURPOSE,
    QUERY,
    SEARCH,
    SECOND,
    SEEN,
    SENTENCE,
    SHOW,
    SNAPSHOT,
    STORY,
    SUB,
    SUMMARY,
    TASK,
    TELL,
    THOUGHT,
    TITLE,
    VERDICT,
    WAIT,
    WRAPPED,
    Program,
    Scene,
    act,
    block,
    both,
    main,
)
from tests.harnesses.scripted import Ask, Rule, asked, cut, filled, offered, says, told, uses, wants_json, without_tools
from tests.harnesses.stage import MODEL, Access, Harness

TWICE = (PROMPT, SECOND)
RUN = {"command": COMMAND}
SEARCHED = Rule("search", without_tools, (says(NOTHING),))


def _claude() -> Program:
    claude, start = claude_code.CLAUDE, claude_code.start
    acts, torn = act("Bash", **RUN), cut(uses("Bash", text=SENTENCE, command=COMMAND), "call")
    agent = uses("Agent", description=SUB, prompt=TASK, subagent_type="general-purpose")
    compaction = Rule("compaction", claude_code.compacting, (says(WRAPPED),))
    finds, searches = uses("ToolSearch", query="select:WebSearch", max_results=1), uses("WebSearch", query=QUERY)
    schema = json.dumps({"type": "object", "properties": {"made": {"type": "boolean"}}, "required": ["made"]})
    structured = replace(claude, command=lambda prompt: start("--json-schema", schema, "-p", prompt))
    plain = {
        "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
        "DISABLE_INTERLEAVED_THINKING": "1",
        "MAX_THINKING_TOKENS": "0",
        "ENABLE_TOOL_SEARCH": "false",
    }
    listing = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1"}
    scenes = (
        Scene("tool", claude, lambda: (main(acts, both("Bash", RUN, {"command": SHOW}), DONE, LATER),), TWICE),
        Scene("sub-agent", claude, lambda: (Rule("sub", told(TASK), (PONG,)), main(agent, WAIT, HEARD)), (ASK_SUB,)),
        Scene("compaction", claude, lambda: (compaction, main(filled(acts, 190_000), DONE))),
        Scene("tool-search", claude, lambda: (SEARCHED, main(finds, searches, DONE)), (SEARCH,)),
        Scene("picture", claude, lambda: (main(uses("Read", file_path=PICTURE), SEEN),), (LOOK,)),
        Scene("structured", structured, lambda: (main(says(MADE), uses("StructuredOutput", made=True)),)),
        Scene("cut", claude, lambda: (main(torn, acts, DONE),)),
        Scene("plain", claude, lambda: (main(acts, DONE),), environment=plain),
        Scene("count", claude, lambda: (), ("/context",), keep=4),
        Scene("models", claude, lambda: (main(DONE),), environment=listing),
    )
    return Program("claude-code", "2.1.332", scenes)


def _codex(name: str, codex: Harness) -> Program:
    run, spawns = {"cmd": COMMAND}, uses("multi_agent_v1__spawn_agent", message=TASK)
    acts = act("exec_command", **run)
    compaction = Rule("compaction", without_tools, (says(SUMMARY),))

    def waits(ask: Ask) -> Turn:
        return uses("multi_agent_v1__wait_agent", targets=[json.loads(ask.last)["agent_id"]])

    def catalogued(access: Access) -> dict[str, str]:
        return {file: text.replace(MODEL, "gpt-6.2-sol") for file, text in codex.files(access).items()}

    scenes = (
        Scene("tool", codex, lambda: (main(acts, both("exec_command", run, {"cmd": SHOW}), DONE, LATER),), TWICE),
        Scene("sub-agent", codex, lambda: (Rule("sub", told(TASK), (PONG,)), main(spawns, waits, HEARD)), (ASK_SUB,)),
        Scene("compaction", codex, lambda: (compaction, main(filled(acts, 120_000), DONE))),
        Scene("picture", codex, lambda: (main(uses("view_image", path=PICTURE), SEEN),), (LOOK,)),
        Scene("catalogued", replace(codex, files=catalogued), lambda: (main(DONE),)),
    )
    return Program(name, "0.171.0", scenes)


def _qwen() -> Program:
    qwen, shell = qwen_code.QWEN, "run_shell_command"
    acts, torn = act(shell, **RUN), cut(uses(shell, text=SENTENCE, command=COMMAND), "call")
    agent = uses("agent", description=SUB, prompt=TASK, subagent_type="general-purpose")
    compaction = Rule("compaction", qwen_code.compacting, (says(SNAPSHOT),))

    def anthropic(access: Access) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": access.url, "ANTHROPIC_API_KEY": access.key, "ANTHROPIC_MODEL": MODEL}

    posing = replace(
        qwen,
        environment=anthropic,
        command=lambda prompt: [part.replace("openai", "anthropic") for part in qwen.command(prompt)],
    )
    scenes = (
        Scene("tool", qwen, lambda: (main(acts, both(shell, RUN, {"command": SHOW}), DONE, LATER),), TWICE),
        Scene("sub-agent", qwen, lambda: (Rule("sub", asked(TASK), (PONG,)), main(agent, WAIT, HEARD)), (ASK_SUB,)),
        Scene("compaction", qwen, lambda: (compaction, main(filled(acts, 172_000), DONE))),
        Scene("cut", qwen, lambda: (main(torn, acts, DONE),)),
        Scene("messages", posing, lambda: (main(acts, DONE),)),
    )
    return Program("qwen-code", "0.24.4", scenes)


def _gemini() -> Program:
    gemini, shell = gemini_cli.GEMINI, "run_shell_command"
    acts, agent = act(shell, **RUN), uses("invoke_agent", agent_name="generalist", prompt=TASK)
    sub = Rule("sub", offered("complete_task"), (uses("complete_task", result={"response": "pong"}),))
    routed = replace(gemini, command=lambda prompt: gemini_cli.start("-p", prompt))
    router = Rule("router", wants_json, (says(VERDICT),))
    compaction = Rule("compaction", without_tools, (says(SNAPSHOT), says(SNAPSHOT)))
    searches, looks = uses("google_web_search", query=QUERY), uses("read_file", file_path=PICTURE)
    scenes = (
        Scene("tool", gemini, lambda: (main(acts, both(shell, RUN, {"command": SHOW}), DONE, LATER),), TWICE),
        Scene("router", routed, lambda: (router, main(DONE))),
        Scene("sub-agent", gemini, lambda: (sub, main(agent, HEARD)), (ASK_SUB,)),
        Scene("compaction", gemini, lambda: (compaction, main(says(STORY), DONE)), (TELL, ON)),
        Scene("web-search", gemini, lambda: (SEARCHED, main(searches, DONE)), (SEARCH,)),
        Scene("picture", gemini, lambda: (main(looks, SEEN),), (LOOK,)),
    )
    return Program("gemini-cli", "0.61.0", scenes)


def _opencode() -> Program:
    opencode, run = opencode_cli.OPENCODE, RUN | {"description": PURPOSE}
    acts, torn = act("bash", **run), cut(uses("bash", text=SENTENCE, **run), "call")
    twice = both("bash", run, {"command": SHOW, "description": PURPOSE})
    agent = uses("task", description=SUB, prompt=TASK, subagent_type="general")
    compaction = Rule("compaction", opencode_cli.COMPACTION.fits, (says(SUMMARY),))
    title = Rule("title", without_tools, (says(TITLE),))
    attached = replace(opencode, command=lambda prompt: [*opencode.command(prompt), "-f", PICTURE])

    def by(package: str, suffix: str) -> Harness:
        def files(access: Access) -> dict[str, str]:
            known = opencode.files(access).items()
            chat, base = "@ai-sdk/openai-compatible", f'"{access.url}/v1"'
            return {name: text.replace(chat, package).replace(base, f'"{access.url}{suffix}"') for name, text in known}

        return replace(opencode, files=files)

    def one_tool() -> tuple[Rule, ...]:
        return (title, main(acts, DONE))

    scenes = (
        Scene("tool", opencode, lambda: (title, main(acts, twice, DONE, LATER)), TWICE),
        Scene(
            "sub-agent",
            opencode,
            lambda: (title, Rule("sub", asked(TASK), (PONG,)), main(agent, HEARD)),
            (ASK_SUB,),
        ),
        Scene("compaction", opencode, lambda: (compaction, title, main(filled(acts, 130_000), DONE))),
        Scene("cut", opencode, lambda: (title, main(torn, acts, DONE))),
        Scene("picture", attached, lambda: (title, main(SEEN)), (LOOK,)),
        Scene("responses", by("@ai-sdk/openai", "/v1"), one_tool),
        Scene("messages", by("@ai-sdk/anthropic", "/v1"), one_tool),
        Scene("gemini", by("@ai-sdk/google", "/v1beta"), one_tool),
    )
    return Program("opencode", "1.18.33", scenes)


def _mini() -> Program:
    mini = mini_swe_agent.MINI

    def extended(*options: str) -> Harness:
        return replace(mini, command=lambda prompt: [*mini.command(prompt), *options])

    def turns() -> tuple[Rule, ...]:
        return (main(act("bash", **RUN), uses("bash", command=FINISH)),)

    text = extended("-c", "mini_textbased.yaml", "--model-class", "litellm_textbased")
    scenes = (
        Scene("tool", mini, turns),
        Scene("responses", extended("--model-class", "litellm_response"), turns),
        Scene("text", text, lambda: (main(says(block(COMMAND), reasoning=THOUGHT), says(block(FINISH))),)),
    )
    return Program("mini-swe-agent", "2.4.6", scenes)


PROGRAMS: tuple[Program, ...] = (
    _claude(),
    _codex("codex", codex_cli.CODEX),
    _codex("codex-socket", codex_cli.CODEX_SOCKET),
    _qwen(),
    _gemini(),
    _opencode(),
    _mini(),
)
