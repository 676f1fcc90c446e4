"""A queue of Amazon SQS by boto3: region, endpoint and credentials are those of its environment."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from polarproxy.errors import BadSettings, MessageTooLarge, QueueFailed
from polarproxy.rollout.delegate.queues import Delivery

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_WAIT_S = 5
"""A poll that waits keeps the program from ending for so long."""
_MOST_AT_ONCE = 10
_LONGEST_S = 43_200
_USUAL_BYTES = 256 << 10
_THREADS = 8


class SqsQueue:
    """A standard queue, by its URL. A context manager, which ends its threads.

    Raises `BadSettings` for a queue that cannot be used. Waits for the network.
    """

    def __init__(self, url: str) -> None:
        if find_spec("boto3") is None:
            raise BadSettings("a queue of SQS needs boto3: pip install 'polarproxy[aws]'")
        if url.endswith(".fifo"):
            raise BadSettings(f"{url} is a FIFO queue, which drops a response that is sent again; use a standard queue")
        boto3, exceptions = import_module("boto3"), import_module("botocore.exceptions")
        self._url = url
        self._failures: tuple[type[Exception], ...] = (exceptions.BotoCoreError, exceptions.ClientError)
        try:
            self._client: Any = boto3.client("sqs", region_name=_region(url))
            wanted = {"QueueUrl": url, "AttributeNames": ["MaximumMessageSize"]}
            found = self._client.get_queue_attributes(**wanted).get("Attributes", {})
        except (*self._failures, ValueError) as error:
            raise BadSettings(f"the queue {url} cannot be used: {error}") from error
        self.most_bytes = int(found.get("MaximumMessageSize", _USUAL_BYTES))
        # Not those of the event loop: a poll waits, and a few of them would keep everybody else waiting.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sqs")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False)

    async def send(self, text: str) -> None:
        """Raises `MessageTooLarge`, `QueueFailed`."""
        size = len(text.encode())
        if size > self.most_bytes:
            raise MessageTooLarge(f"a message of {size} bytes does not fit into {self._url} ({self.most_bytes})")
        await self._ask("send_message", MessageBody=text)

    async def receive(self, most: int, visible_s: float) -> list[Delivery]:
        """Waits for five seconds when there is nothing. Raises `QueueFailed`."""
        answer = await self._ask(
            "receive_message",
            MaxNumberOfMessages=min(most, _MOST_AT_ONCE),
            WaitTimeSeconds=_WAIT_S,
            VisibilityTimeout=_seconds(visible_s),
            AttributeNames=["ApproximateReceiveCount"],
        )
        return [
            Delivery(one["Body"], one["ReceiptHandle"], int(one["Attributes"]["ApproximateReceiveCount"]))
            for one in answer.get("Messages", ())
        ]

    async def extend(self, delivery: Delivery, visible_s: float) -> None:
        """Raises `QueueFailed`, also when somebody else received it since."""
        await self._ask(
            "change_message_visibility", ReceiptHandle=delivery.handle, VisibilityTimeout=_seconds(visible_s)
        )

    async def acknowledge(self, delivery: Delivery) -> None:
        """Raises `QueueFailed`."""
        await self._ask("delete_message", ReceiptHandle=delivery.handle)

    async def _ask(self, what: str, **more: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            try:
                answer: dict[str, Any] = getattr(self._client, what)(QueueUrl=self._url, **more)
            except self._failures as error:
                raise QueueFailed(f"{self._url}: {error}") from error
            return answer

        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)


def _seconds(visible_s: float) -> int:
    return min(_LONGEST_S, -int(-visible_s // 1))


def _region(url: str) -> str | None:
    """The one that a URL of Amazon's names. None: it is that of the environment."""
    service, _, rest = (urlsplit(url).hostname or "").partition(".")
    return (
        rest.partition(".")[0] if service == "sqs" and rest.endswith((".amazonaws.com", ".amazonaws.com.cn")) else None
    )
