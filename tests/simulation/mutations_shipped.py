"""Deliberate bugs in what surrounds the core: what worlds of the product as it ships must find."""

from __future__ import annotations

from tests.simulation.mutations import Mutation

OWNERSHIP, AUTHORITY = "gamecast/client/ownership.py", "gamecast/client/authority.py"
MOVING, PRESENCE, REGISTER = "gamecast/client/moving.py", "gamecast/client/presence.py", "adapters/presence.py"
UPDATES, UPDATING, STATES = "sequencing/updates.py", "gamecast/client/updating.py", "gamecast/client/states.py"
STORE, REGIONLIFE, GRANTS = "sequencing/store.py", "sequencing/regionlife.py", "sequencing/grants.py"
FOLLOWING, DECODING, HEARTBEAT = (
    "gamecast/client/following.py",
    "gamecast/client/decoding.py",
    "gamecast/client/heartbeat.py",
)
LEADER, GONE, SUBSCRIBER = "sequencing/leader.py", "sequencing/gone.py", "sequencing/subscriber.py"
NODE, RELAY, SESSION, HAD = "sequencing/node.py", "adapters/relay.py", "sequencing/session.py", "sequencing/had.py"
ADAPTER = "adapters/leader.py"

SHIPPED_MUTATIONS = (
    Mutation(
        "an owner's event has no condition on being the owner",
        OWNERSHIP,
        "    return {owner: token, **added}",
        "    return {owner: token, **added} if added else {}",
    ),
    Mutation(
        "a handover does not ask whether the entity is still owned",
        AUTHORITY,
        "own: dict[tuple[str, str], str | None] = {(self.region, self._key): self.position}",
        "own: dict[tuple[str, str], str | None] = {}",
    ),
    Mutation(
        "an entity that was handed on is still published for",
        AUTHORITY,
        """        self._end(receipt.position, f"{self.entity!r} was handed to {offer.owner!r}")\n""",
        "        self.position = receipt.position or self.position\n",
    ),
    Mutation(
        "each who sees a handover accepts it",
        AUTHORITY,
        "if offer is None or offer.owner != self._name:",
        "if offer is None:",
    ),
    Mutation(
        "an acceptance has no condition",
        AUTHORITY,
        "position = await self._take(offer.region, key, payload, moving(offer), offer.position, claim)",
        "now = set_at(await self._snapshot(offer.region), key)\n"
        "        position = await self._take(offer.region, key, payload, moving(offer), now, claim)",
    ),
    Mutation(
        "an update does not wait for what its sender had seen",
        UPDATES,
        "                if passed[behind]:\n",
        "                if passed[behind] or True:\n",
    ),
    Mutation(
        "an update is sent before the event that was published before it",
        UPDATES,
        "            if gathering.mark is not None and not self._own.is_answered(region, gathering.mark):\n"
        "                return\n",
        "",
    ),
    Mutation(
        "an older update replaces a newer one",
        UPDATES,
        "            if newest is None or newest < (incarnation, number):",
        "            if newest is None or newest != (incarnation, number):",
    ),
    Mutation(
        "an update's place is what was decoded, and not what was given",
        UPDATING,
        "        return self.first_untaken is None or position < self.first_untaken",
        "        return True",
    ),
    Mutation(
        "a state is told before what is in it was delivered",
        STATES,
        "out: list[Item] = [*self._tell(coming)] if coming.shows_place and not left else []",
        "out: list[Item] = [*self._tell(coming)]",
    ),
    Mutation(
        "what comes while a state is asked for is not held back",
        STATES,
        "            if self._held or region in self._asked or not self._asked.keys().isdisjoint("
        "part.region for part in others):",
        "            if self._held:",
    ),
    Mutation(
        "the state of other regions is not waited for",
        STATES,
        "left == wanted.keys() or others <= wanted.keys(), left)",
        "True, left)",
    ),
    Mutation(
        "a copy of an event of several regions is given once more",
        HAD,
        "        if begin is not None and begin < position <= self._passed.get(region, begin):\n"
        "            return True\n",
        "",
    ),
    Mutation(
        "a late leave ends a later stay",
        PRESENCE,
        "                return True  # it is back, as another connection\n",
        "                pass\n",
    ),
    Mutation(
        "a connection that others ended goes on as present",
        PRESENCE,
        "                    self._following.fail(self._expired())\n                    return\n",
        "                    pass\n",
    ),
    Mutation(
        "who is gone is found absent and not ended",
        PRESENCE,
        "                await self._end_all(found)\n",
        "",
    ),
    Mutation(
        "who closes does not leave",
        PRESENCE,
        "                await self.leave([*self._at])\n",
        "                pass\n",
    ),
    Mutation(
        "a register that was away takes all for absent",
        REGISTER,
        "            self._since_s = now_s\n        self._looked_s = now_s\n",
        "            pass\n        self._looked_s = now_s\n",
    ),
    Mutation(
        "a leader writes although another has written",
        STORE,
        "if self._leader_now(now) != fence.token or fence.number != self._number:",
        "if self._leader_now(now) != fence.token:",
    ),
    Mutation(
        "a leader without the lease writes",
        STORE,
        "if self._leader_now(now) != fence.token or fence.number != self._number:",
        "if fence.number != self._number:",
    ),
    Mutation(
        "who is back is not asked for all that it wants",
        STORE,
        "        if begins and not request.whole and request.said != 1:  # what is said first is all\n"
        "            return Heard.BACK\n",
        "",
    ),
    Mutation(
        "a heartbeat does not tell that the network has forgotten the connection",
        HEARTBEAT,
        "            self._following.tell_again()\n",
        "            pass\n",
    ),
    Mutation(
        "a request that was held up replaces a newer one",
        STORE,
        "if begins or (known is not None and request.said >= known.said):",
        "if True:",
    ),
    Mutation(
        "a superseded connection goes on",
        STORE,
        "return self.connections.get(name, self._gone.get(name)) == connection",
        "return True",
    ),
    Mutation(
        "an incarnation is given twice",
        STORE,
        "        drawn = self.incarnation + 2\n",
        "        drawn = self.incarnation + 2 * (self.incarnation % 3 > 0)\n",
    ),
    Mutation(
        "the leader takes changes that it did not hear for heard",
        STORE,
        '            touched = frozenset(islice(reversed(self._changes), behind)) - {""}',
        "            touched = frozenset()",
    ),
    Mutation(
        "the place of one who is gone is not kept",
        GONE,
        "if each.since_s > horizon}",
        "if False}",
    ),
    Mutation(
        "a region is joined before its marker has come",
        SUBSCRIBER,
        "return state is not None and state.awaited is None and self._is_delivered(region, state)",
        "return state is not None and self._is_delivered(region, state)",
    ),
    Mutation(
        "the leader hears of no new request",
        ADAPTER,
        "        self._asking = None\n        asking_done.result()\n",
        "        asking_done.result()\n",
    ),
    Mutation(
        "a relay trims what was not accepted",
        RELAY,
        "            await self._source.acknowledge(target, accepted)\n",
        "            await self._source.acknowledge(target, accepted + 1)\n",
    ),
    Mutation(
        "markers whose fate is unknown are not published again",
        SESSION,
        "        elif each.error is not None and not isinstance(each.error, Superseded):\n",
        "        elif False:\n",
    ),
)
