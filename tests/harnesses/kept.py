"""What of a recorded request stays as it is: words of the APIs and of the agents' own protocols, names of tools, models.

Whatever is not here, is no key and was not written by us is replaced (`scrub`). A new version of an agent may bring new
words: those are replaced too until they are added, so nothing of an agent's prose gets in by itself.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


API = _words(
    """
    developer system user assistant model tool true false null
    object string boolean number integer array null uri OBJECT STRING INTEGER NUMBER BOOLEAN ARRAY
    text message function function_call function_call_output reasoning reasoning_text input_text output_text input_image
    image_url image base64 input_file file namespace web_search custom grammar lark additional_tools custom_tool_call
    thinking redacted_thinking tool_use tool_result tool_reference ephemeral adaptive enabled disabled json_schema
    json_object web_search_20250305 clear_thinking_20251015 omitted updates all auto AUTO ANY any none required
    minimal low medium high xhigh max MINIMAL LOW MEDIUM HIGH detailed completed in_progress incomplete
    reasoning.encrypted_content all_turns application/json image/png 1h 5m
    response.create skip_thought_signature_validator
    http://json-schema.org/draft-07/schema# https://json-schema.org/draft/2020-12/schema
    """
)
"""Types, roles and settings of the four APIs and of JSON Schema."""

TOOLS = _words(
    """
    Agent Bash CronCreate CronDelete CronList DeferredToolPlaceholder Edit EnterWorktree ExitWorktree ListAgents Monitor
    NotebookEdit Read ReportFindings ScheduleWakeup SendMessage Skill StructuredOutput TaskStop ToolSearch WebFetch
    WebSearch Workflow Write select:WebSearch general-purpose
    apply_patch clock close_agent collaboration create_goal exec exec_command followup_task functions get_goal
    interrupt_agent list_agents multi_agent_v1 request_user_input request_user_input_async resume_agent send_input
    send_message send_message_to_user_async sleep spawn_agent update_goal update_plan view_image wait wait_agent
    write_stdin zoom_image
    agent edit glob grep_search list_directory loop_wakeup monitor notebook_edit read_file report_findings
    run_shell_command skill task_stop todo_write tool_call tool_search web_fetch write_file
    activate_skill complete_task enter_plan_mode generalist google_web_search invoke_agent list_background_processes
    read_background_output read_mcp_resource replace update_topic
    bash general grep read task todowrite webfetch write
    """
)
"""Tools and kinds of sub-agents."""

PROTOCOL = _words(
    """
    new cold_resume turn compaction prewarm thread_spawn collab_spawn subagent exec danger-full-access memento mid_turn
    context_limit responses markdown code insert delete use_default require_escalated complete blocked paused worktree
    remote keep remove sonnet opus haiku fable CONFIRMED PLAUSIBLE Critical Suggestion authority build certifies-falsely
    external fails-closed fixed html important infeasible lint new-surface nit no_change_needed pre_existing probe
    regression repeated review skipped test
    """
)
"""Codex's words about its own requests, and choices that tools offer."""

MODELS = _words(
    """
    mock-model mock-small gpt-6.2-sol gemini-3.5-flash-lite gemini-3.8-flash gemini-3.1-pro-preview
    gemini-3.1-pro-preview-customtools gemini-3-flash-preview
    """
)

KEPT = API | TOOLS | PROTOCOL | MODELS

HEADERS = _words(
    """
    accept accept-encoding accept-language content-type connection upgrade sec-fetch-mode sec-websocket-extensions
    sec-websocket-version authorization x-api-key x-goog-api-key x-goog-api-client user-agent originator openai-beta
    anthropic-beta anthropic-version anthropic-dangerous-direct-browser-access x-app x-run-id x-codex-beta-features
    x-openai-subagent x-openai-internal-codex-responses-lite
    x-stainless-arch x-stainless-async x-stainless-lang x-stainless-os x-stainless-package-version
    x-stainless-raw-response x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime
    x-stainless-runtime-version x-stainless-timeout
    """
)
"""Headers whose values stay: they name programs, versions and settings, and the key that nobody uses."""

DROPPED = frozenset({"host", "content-length", "sec-websocket-key"})
"""Headers of one connection."""
