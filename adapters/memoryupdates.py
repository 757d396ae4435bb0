"""Updates of a network in this process."""

from __future__ import annotations

from adapters.memoryworld import MemoryWorld
from adapters.network import UpdateUser
from sequencing.plan import Plan
from sequencing.updates import decode


class MemoryUpdates:
    """One connection's access. Implements `adapters.network.UpdatePort`."""

    def __init__(self, world: MemoryWorld, user: UpdateUser) -> None:
        self._world, self._user = world, user

    def follow(self, plan: Plan) -> None:
        """See `UpdatePort.follow`."""

    def has_room(self, node: str) -> bool:
        """See `UpdatePort.has_room`."""
        return True

    def send(self, node: str, region: str, message: bytes) -> None:
        """See `UpdatePort.send`."""
        self._world.loop.call_soon(self._hand_out, node, region, message)

    def _hand_out(self, node: str, region: str, message: bytes) -> None:
        bundle = decode(message)
        for user in list(self._world.update_users.get((node, region), ())):
            user.take_updates(region, bundle)

    def listen(self, node: str, region: str, *, on: bool) -> None:
        """See `UpdatePort.listen`."""
        users = self._world.update_users.setdefault((node, region), {})
        if on:
            users[self._user] = None
        else:
            users.pop(self._user, None)
        if not users:
            del self._world.update_users[node, region]

    async def close(self) -> None:
        """See `UpdatePort.close`."""
        for (node, region), users in list(self._world.update_users.items()):
            if self._user in users:
                self.listen(node, region, on=False)
