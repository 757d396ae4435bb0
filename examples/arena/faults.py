"""What a visitor of this machine may break: it is repaired by itself, a few seconds later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from laboratory.wan.network import WanNetwork
from sequencing.plan import Plan

from .gateways import Gateway
from .keepers import Keeper

NODE_DOWN_S = 1.0
LINK_CUT_S = 3.0
GATEWAY_DOWN_S = 4.0
KEEPER_DOWN_S = 4.0


@dataclass(slots=True)
class Broken:
    """What was broken last, of one kind. Times are the loop's."""

    what: str
    how: str
    lost_before: int
    began_s: float
    repaired_s: float | None = None


class Faults:
    """Breaks one thing of each kind at a time: a node, a link, a gateway or a keeper, those of a kind in turn."""

    def __init__(
        self,
        network: WanNetwork,
        plan: Plan,
        gateways: Sequence[Gateway],
        keepers: Sequence[Keeper],
        lost: Callable[[], int],
    ) -> None:
        """``plan``: by which the events go; ``lost``: how many have been lost so far."""
        self._network = network
        self._lost = lost
        self._keepers = keepers
        nodes = sorted({node for path in plan.paths.values() for node in path}, reverse=True)  # the control last
        self._nodes, self._links, self._gateways = cycle(nodes), cycle(sorted(plan.links)), cycle(gateways)
        self._last: dict[str, Broken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "node": self._kill_node,
            "link": self._cut_link,
            "gateway": self._stop_gateway,
            "keeper": self._stop_keeper,
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """What can be broken."""
        return tuple(self._kinds)

    def begin(self, kind: str) -> bool:
        """Break the next of a kind, in the background; returns False while one of the kind is broken."""
        last = self._last.get(kind)
        if last is not None and last.repaired_s is None:
            return False
        self._last[kind] = Broken("", "", self._lost(), time.monotonic())
        task = asyncio.ensure_future(self._run(kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def document(self) -> dict[str, Any]:
        """Return what was broken last, kind by kind, as JSON can hold it."""
        now_s = time.monotonic()
        return {
            kind: {
                "what": last.what,
                "how": last.how,
                "ago_s": round(now_s - last.began_s),
                "down_s": round(last.repaired_s - last.began_s, 1) if last.repaired_s is not None else None,
                "lost": self._lost() - last.lost_before,
            }
            for kind, last in self._last.items()
        }

    async def close(self) -> None:
        """Wait until everything is repaired."""
        await asyncio.gather(*self._tasks)

    async def _run(self, kind: str) -> None:
        await self._kinds[kind]()
        self._last[kind].repaired_s = time.monotonic()

    async def _kill_node(self) -> None:
        node = next(self._nodes)
        self._describe("node", f"node {node}", "was killed")
        server = self._network.server(node)
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(NODE_DOWN_S)
        await server.restart_async()

    async def _cut_link(self) -> None:
        source, target = next(self._links)
        self._describe("link", f"the link from {source} to {target}", "was cut")
        await self._network.cut(source)
        await asyncio.sleep(LINK_CUT_S)
        self._network.mend(source)

    async def _stop_gateway(self) -> None:
        gateway = next(self._gateways)
        self._describe("gateway", gateway.name, "was stopped")
        await gateway.stop()
        await asyncio.sleep(GATEWAY_DOWN_S)
        await gateway.start()

    async def _stop_keeper(self) -> None:
        keeper = next((keeper for keeper in self._keepers if keeper.owns), self._keepers[0])
        self._describe("keeper", keeper.name, "was stopped")
        await keeper.stop()
        await asyncio.sleep(KEEPER_DOWN_S)
        await keeper.start()

    def _describe(self, kind: str, what: str, how: str) -> None:
        self._last[kind].what, self._last[kind].how = what, how
