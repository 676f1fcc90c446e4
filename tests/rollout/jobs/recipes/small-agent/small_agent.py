"""Asks the model, runs what it says in a shell, and tells it the output, until that says that it is done."""

import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

TOOL = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object", "properties": {"command": {}}}},
}


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": os.environ["MODEL"], "messages": messages, "tools": [TOOL]}).encode()
    head = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
    asked = urllib.request.Request(os.environ["BASE"] + "/v1/chat/completions", body, head)
    message: dict[str, Any] = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]
    return message


def main() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": sys.argv[1]}]
    output = ""
    while "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" not in output:
        said = ask(messages)
        calls = said.get("tool_calls") or []
        messages.append({"role": "assistant", "content": said.get("content"), "tool_calls": calls})
        for call in calls:
            command = json.loads(call["function"]["arguments"])["command"]
            output = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})


main()
