"""Run the fake engine by hand: `python -m tests.fakes --port 8000 --words 200`.

Prints its URL on the first line of stdout and serves until it is interrupted. Every reply is the same; `--delay` is the
pause after each event in seconds.
"""

import argparse
import asyncio
import contextlib
import signal

from tests.fakes.compose import Tool, compose
from tests.fakes.engine import FakeEngine
from tests.fakes.faults import Faults
from tests.fakes.script import Script, always


def script(words: int, delay: float, tool: bool) -> Script:
    content = " ".join(f"w{number}" for number in range(words))
    tools = [Tool("get_weather", '{"unit":"C", "city":"Paris"}')] if tool else []
    return always(compose(content, reasoning="Let me see.", tools=tools), faults=Faults(event_delay=delay))


async def serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    scripted = script(arguments.words, arguments.delay, arguments.tool)
    async with FakeEngine(scripted, model=arguments.model, port=arguments.port) as engine:
        print(engine.url, flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--words", type=int, default=20, help="length of each reply")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds after each event")
    parser.add_argument("--tool", action="store_true", help="end each reply with a tool call")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
