"""Rollouts on the nodes of a Ray cluster: actors run the same stages as one process does; Ray places and restarts them.

The runner, the proxy and the state stay with the process that started the job; results are in the shared database.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.cli.recipes import harness_cache
from polarproxy.cli.records import StoreRecords
from polarproxy.errors import BadSettings, ProxyRefused
from polarproxy.model import Reward, SessionStatus
from polarproxy.rollout.recipes import find_harnesses
from polarproxy.rollout.service.gateway import Gateway
from polarproxy.rollout.service.lifecycle import Lifecycle
from polarproxy.rollout.service.pauses import Pauses
from polarproxy.rollout.service.ports import Order, Pools
from polarproxy.rollout.service.request import TaskRequest
from polarproxy.rollout.service.verdict import Detail, Verdict
from polarproxy.rollout.service.workshop import RecipeWorkshop
from polarproxy.store.database import open_database, sqlite_file
from polarproxy.store.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence

    ClusterNode = dict[str, Any]
    """What Ray tells of a node."""

_LOOK_S = 1.0
_CLOSED_S = 10.0
RESOURCE = "polarproxy"
"""Where nodes of the cluster have a resource of this name, only those are used."""


class _Told(msgspec.Struct):
    """A verdict on its way between nodes."""

    status: SessionStatus
    reward: Reward | None
    detail: Detail
    opened: bool


class _Asked(msgspec.Struct):
    """An order on its way between nodes."""

    task_id: str
    number: int
    session_id: str
    request: TaskRequest


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node must know; every machine has polarproxy installed, and reaches the proxy and the database."""

    proxy: str
    admin_key: str
    db: str
    runtime: str
    recipes: str | None
    """Folder of the user's own, at the same path on every machine. None: there is none."""
    model: str
    context: int
    pools: Pools


class Node:
    """The stages on one machine; the body of a Ray actor, which is async."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._stack = AsyncExitStack()
        self._lifecycle: asyncio.Task[Lifecycle] | None = None

    async def ping(self) -> None:
        """It is there."""

    async def run(self, asked: bytes) -> bytes:
        """One rollout."""
        if self._lifecycle is None:
            self._lifecycle = asyncio.ensure_future(self._begin())
        lifecycle = await asyncio.shield(self._lifecycle)
        order = msgspec.msgpack.decode(asked, type=_Asked)
        verdict = await lifecycle.run(Order(order.task_id, order.number, order.session_id, order.request))
        told = _Told(verdict.status, verdict.reward, verdict.detail, verdict.opened)
        return msgspec.msgpack.encode(told)

    async def close(self) -> None:
        """Leaves nothing on its machine."""
        await self._stack.aclose()

    async def _begin(self) -> Lifecycle:
        setup = self._setup
        own = None if setup.recipes is None else Path(setup.recipes)

        async def served() -> tuple[str, int]:
            return setup.model, setup.context

        workshop = RecipeWorkshop(setup.proxy, find_harnesses(own), harness_cache(), setup.runtime, served)
        self._stack.enter_context(workshop)
        gateway = await self._stack.enter_async_context(Gateway(setup.proxy, setup.admin_key))
        engine, pauses = open_database(setup.db), Pauses()
        self._stack.callback(engine.dispose)
        following = asyncio.create_task(pauses.follow(gateway.paused))
        self._stack.callback(following.cancel)
        return Lifecycle(workshop, gateway, StoreRecords(Repository(engine)), pauses, setup.pools)


class RayExecutor:
    """Hands rollouts to the nodes in turn. One that dies costs its rollouts an attempt; Ray starts it anew elsewhere."""

    def __init__(self, nodes: list[Any], setup: Setup, gateway: Gateway) -> None:
        self._ray = import_module("ray")
        self._nodes, self._gateway = nodes, gateway
        self._turn = count()
        self._down: dict[int, asyncio.Task[None]] = {}
        """By their place: nodes that were lost, and who waits for Ray to have started them anew."""
        self._each = setup.pools.ready + setup.pools.run + setup.pools.post

    @property
    def places(self) -> int:
        """Of all nodes."""
        return self._each * len(self._nodes)

    async def run(self, order: Order) -> Verdict:
        """One rollout, wherever there is a place."""
        asked = msgspec.msgpack.encode(_Asked(order.task_id, order.number, order.session_id, order.request))
        place = await self._choose()
        reference = self._nodes[place].run.remote(asked)
        try:
            told = msgspec.msgpack.decode(await reference, type=_Told)
        except asyncio.CancelledError:
            self._ray.cancel(reference)
            # Refused, it had not been made.
            with suppress(ProxyRefused):
                await self._gateway.close_session(order.session_id, SessionStatus.ABORTED)
            raise
        except self._ray.exceptions.RayError as error:
            if place not in self._down:
                self._down[place] = asyncio.create_task(self._back(place))
            # It may have ended before its node did: the runner looks, and ends its session if it had not.
            lost = Verdict()
            lost.fail(SessionStatus.INFRA_ERROR, f"its node was lost: {type(error).__name__}")
            return lost
        return Verdict(told.status, told.reward, told.detail, told.opened)

    async def close(self) -> None:
        """Lets the nodes clear up; one that does not answer, whoever comes there next does it for."""
        closing = [asyncio.ensure_future(_answered(node.close.remote())) for node in self._nodes]
        await asyncio.wait(closing, timeout=_CLOSED_S)
        for one in (*closing, *self._down.values()):
            one.cancel()
        await asyncio.gather(*closing, *self._down.values(), return_exceptions=True)

    async def _choose(self) -> int:
        """The next one in turn that is there; waits for the first when none is."""
        while len(self._down) == len(self._nodes):
            await asyncio.wait(self._down.values(), return_when=asyncio.FIRST_COMPLETED)
        return next(place for number in self._turn if (place := number % len(self._nodes)) not in self._down)

    async def _back(self, place: int) -> None:
        while True:
            try:
                await self._nodes[place].ping.remote()
            except self._ray.exceptions.RayError:
                await asyncio.sleep(_LOOK_S)
            else:
                del self._down[place]
                return


async def _answered(reference: Awaitable[None]) -> None:
    await reference


@contextmanager
def cluster(address: str | None) -> Iterator[Sequence[ClusterNode]]:
    """Joins a cluster as its driver while the block lasts; its nodes that are alive. Raises `BadSettings`.

    `address` None: the one that RAY_ADDRESS names, else a new one on this machine.
    """
    if find_spec("ray") is None:
        raise BadSettings("--runner ray needs Ray: pip install 'polarproxy[ray]'")
    ray = import_module("ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadSettings(f"there is no Ray cluster at {address}: {error}") from error
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        marked = [node for node in alive if RESOURCE in node["Resources"]]
        yield marked or [node for node in alive if node["Resources"].get("CPU")] or alive
    finally:
        ray.shutdown()


def check_reach(nodes: Sequence[ClusterNode], db: str) -> str:
    """The address on which the proxy must listen; raises `BadSettings` for a database that other machines cannot read."""
    ray = import_module("ray")
    here = ray.util.get_node_ip_address()
    if all(node["NodeManagerAddress"] == here for node in nodes):
        return "127.0.0.1"
    if sqlite_file(db) is not None:
        raise BadSettings("the cluster has several machines, which cannot share a SQLite file; set `db` to PostgreSQL")
    return str(here)


def start_nodes(nodes: Sequence[ClusterNode], setup: Setup) -> list[Any]:
    """An actor for each node, spread over them; Ray restarts those that die on the nodes that are left."""
    ray = import_module("ray")
    marked = any(RESOURCE in node["Resources"] for node in nodes)
    kind = ray.remote(
        num_cpus=0,
        resources={RESOURCE: 1} if marked else None,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=1000,
        scheduling_strategy="SPREAD",
    )(Node)
    return [kind.remote(setup) for _ in nodes]
