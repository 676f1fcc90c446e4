"""The queues keep what the delegate relies on: at least once, hidden for a while, gone once acknowledged. SQS is moto's."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from polarproxy.errors import BadSettings, MessageTooLarge, QueueFailed
from polarproxy.rollout.delegate.queues import Delivery, LocalQueue, Queue
from polarproxy.rollout.delegate.sqs import SqsQueue
from tests.proxy.rig import rig
from tests.rollout.delegate.desk import desk, generate, rollout

Make: TypeAlias = Callable[[int], Queue]


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """A server that speaks SQS."""
    why = "SQS is tested against moto: pip install 'polarproxy[dev]'"
    pytest.importorskip("flask_cors", reason=why)
    server = pytest.importorskip("moto.server", reason=why).ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def new_url(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """Makes a queue; its URL."""
    boto3 = pytest.importorskip("boto3")
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", aws)
    client, numbers = boto3.client("sqs"), iter(range(100))

    def made(most_bytes: int = 262_144) -> str:
        name = f"q{time.monotonic_ns()}-{next(numbers)}"
        answer = client.create_queue(QueueName=name, Attributes={"MaximumMessageSize": str(most_bytes)})
        url: str = answer["QueueUrl"]
        return url

    yield made
    client.close()


@pytest.fixture(params=["local", "sqs"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "local":
        yield LocalQueue
        return
    new_url, opened = request.getfixturevalue("new_url"), list[SqsQueue]()

    def made(most_bytes: int) -> Queue:
        opened.append(SqsQueue(new_url(most_bytes)))
        return opened[-1]

    yield made
    for queue in opened:
        queue.__exit__(None, None, None)


async def received(queue: Queue, visible_s: float = 60.0, seconds: float = 20.0) -> Delivery:
    async with asyncio.timeout(seconds):
        while not (found := await queue.receive(1, visible_s)):
            pass
    (one,) = found
    return one


async def test_a_message_is_hidden_comes_again_and_goes(make: Make) -> None:
    queue = make(262_144)
    await queue.send("ä\U0001f600")
    first = await received(queue, 1.0)
    assert (first.text, first.times) == ("ä\U0001f600", 1)
    second = await received(queue)
    assert (second.text, second.times) == ("ä\U0001f600", 2)
    await queue.extend(second, 0.0)
    third = await received(queue)
    assert third.times == 3
    await queue.acknowledge(third)
    await queue.send("b")
    last = await received(queue)
    assert last.text == "b"
    await queue.extend(last, 1.0)
    assert (await received(queue)).text == "b"


async def test_what_is_extended_stays_hidden(make: Make) -> None:
    queue = make(262_144)
    await queue.send("a")
    first = await received(queue, 1.0)
    await queue.extend(first, 60.0)
    await asyncio.sleep(1.1)
    assert await queue.receive(1, 60.0) == []


async def test_no_more_is_given_than_was_asked_for(make: Make) -> None:
    queue = make(262_144)
    for number in range(12):
        await queue.send(str(number))
    found = await queue.receive(3, 60.0)
    assert 1 <= len(found) <= 3
    texts = [one.text for one in found]
    while len(texts) < 12:
        texts += [one.text for one in await queue.receive(100, 60.0)]
    assert sorted(texts, key=int) == [str(number) for number in range(12)]


async def test_what_is_too_large_is_said_with_the_limit(make: Make) -> None:
    queue = make(2048)
    await queue.send("a" * 2048)
    with pytest.raises(MessageTooLarge, match=r"2049 bytes does not fit .*2048"):
        await queue.send("é" + "a" * 2047)


async def test_a_trainer_on_sqs_gets_its_rollouts(tmp_path: Path, new_url: Callable[[int], str]) -> None:
    with SqsQueue(new_url(262_144)) as asked, SqsQueue(new_url(2048)) as answered:
        async with desk(tmp_path, asked=asked, answered=answered) as made:
            odd = "\ufffe\uffff\x01"
            response = await made.answer_to(rollout("r" + odd, evaluator={"kind": "tests", "command": ["true"]}))
            (one,) = response["rollouts"]
            assert (response["id"], one["status"], one["aggregate_reward_score"]) == ("r" + odd, "completed", 1.0)
            assert (await made.answer_to("nothing"))["type"] == "error"
            many = await made.answer_to(rollout("many", num_samples=8))
            assert (many["rollouts"], many["left_out"]) == ([], 8)
            # Everything was acknowledged.
            await asyncio.sleep(0.7)
            assert await asked.receive(10, 60.0) == []


async def test_serve_is_a_delegate(tmp_path: Path, new_url: Callable[[int], str]) -> None:
    asked, answered = new_url(262_144), new_url(262_144)
    async with _serving(tmp_path, asked, answered):
        with SqsQueue(asked) as to, SqsQueue(answered) as back:
            await to.send(json.dumps(rollout(harness="nobody")))
            refused = json.loads((await _taken(back)).text)
            assert (refused["type"], refused["id"]) == ("error", "r1")
            assert "nobody" in refused["error"]
            await to.send(json.dumps(generate()))
            assert json.loads((await _taken(back)).text)["message"]["content"] == "Hello you."


@asynccontextmanager
async def _serving(folder: Path, asked: str, answered: str) -> AsyncIterator[None]:
    settings: dict[str, Any] = {"rollouts": 1, "delegate_requests": asked, "delegate_responses": answered}
    async with rig(folder, **settings):
        yield


async def _taken(queue: Queue) -> Delivery:
    one = await received(queue)
    await queue.acknowledge(one)
    return one


async def test_a_queue_that_there_is_not_is_said_at_once(
    tmp_path: Path, aws: str, new_url: Callable[[int], str]
) -> None:
    nowhere = aws + "/123456789012/nowhere"
    with pytest.raises(BadSettings, match=r"nowhere cannot be used: .*"):
        SqsQueue(nowhere)
    with pytest.raises(BadSettings, match="nowhere cannot be used"):
        async with _serving(tmp_path, new_url(262_144), nowhere):
            pass
    with pytest.raises(BadSettings, match="FIFO"):
        SqsQueue("https://sqs.us-east-1.amazonaws.com/1/a.fifo")


async def test_a_queue_that_is_removed_is_a_failure(new_url: Callable[[int], str]) -> None:
    boto3, url = pytest.importorskip("boto3"), new_url(262_144)
    with SqsQueue(url) as queue:
        boto3.client("sqs").delete_queue(QueueUrl=url)
        with pytest.raises(QueueFailed, match="q"):
            await queue.receive(1, 60.0)
        with pytest.raises(QueueFailed):
            await queue.send("a")
