"""Record what a real vLLM answers to every case, one file per case.

    python -m tests.fakes.record --url http://127.0.0.1:8101 --out tests/fixtures/vllm

The server must be started as `tests.e2e.vllm_server` starts it. Each file holds the request and, for each form asked,
the status, the content type and the exact text of the body.
"""

import argparse
import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.fakes.cases import CASES, CHAT, Case
from tests.fakes.text_cases import COMPLETIONS, TEXT_CASES

TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    body: str


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any], path: str = CHAT) -> Answer:
    async with session.post(f"{url}{path}", json=body) as reply:
        return Answer(reply.status, reply.headers["Content-Type"], (await reply.read()).decode())


async def answers(session: aiohttp.ClientSession, url: str, case: Case, path: str) -> dict[str, Answer]:
    """By form: `whole` and `stream`."""
    asked = {("stream" if stream else "whole"): {**case.body, "stream": stream} for stream in case.forms}
    return {form: await ask(session, url, body, path) for form, body in asked.items()}


async def record(url: str, path: str, cases: Iterable[Case], out: Path) -> None:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
        for case in cases:
            found = await answers(session, url, case, path)
            content = {"request": case.body} | {form: asdict(answer) for form, answer in found.items()}
            text = json.dumps(content, ensure_ascii=False, indent=1)
            (out / f"{case.name}.json").write_text(text + "\n", encoding="utf-8")


async def record_all(url: str, out: Path) -> None:
    """Chat completions into the folder itself, text completions into `completions` below it."""
    await record(url, CHAT, CASES, out)
    await record(url, COMPLETIONS, TEXT_CASES, out / "completions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    asyncio.run(record_all(arguments.url, arguments.out))


if __name__ == "__main__":
    main()
