"""Deliberate bugs in what surrounds the core: what worlds of the product as it ships must find."""

from __future__ import annotations

from tests.simulation.mutations import Mutation

OWNERSHIP, AUTHORITY = "gamecast/client/ownership.py", "gamecast/client/authority.py"
PRESENCE = "gamecast/client/presence.py"
UPDATES, UPDATING, STATES = "sequencing/updates.py", "gamecast/client/updating.py", "gamecast/client/states.py"
STORE = "sequencing/store.py"
DECODING, REPLAYS = "gamecast/client/decoding.py", "gamecast/client/replays.py"
INCOMING, KEYS = "gamecast/client/incoming.py", "gamecast/client/keys.py"
SUBSCRIBER, SESSION, HAD = "sequencing/subscriber.py", "sequencing/session.py", "sequencing/had.py"
RELAY = "adapters/relay.py"
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
        "            if self._held or region in self.calls or not self.calls.keys().isdisjoint("
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
        "who is gone is found absent and not ended",
        PRESENCE,
        "                await self._end_all(gone)\n",
        "",
    ),
    Mutation(
        "a leader writes although another has written",
        STORE,
        "if self._leader_now(now) != fence.token or fence.number != self._number:",
        "if self._leader_now(now) != fence.token:",
    ),
    Mutation(
        "who is back is not asked for all that it wants",
        STORE,
        "        if begins and not request.whole and request.said != 1:  # what is said first is all\n"
        "            return Heard.BACK\n",
        "",
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
    Mutation(
        "a leader that leads again goes on with what it knew",
        ADAPTER,
        "if seen.taken or self.machine.is_over:",
        "if False:",
    ),
    Mutation(
        "an event of a live region and one whose history is asked for does not wait",
        REPLAYS,
        "        self._asked.update(dict.fromkeys(regions, False))\n",
        "",
    ),
    Mutation(
        "a resume begins one event late",
        DECODING,
        "        self._floors |= positions\n",
        "        self._floors |= {region: (epoch, last + 1) for region, (epoch, last) in positions.items()}\n",
    ),
    Mutation(
        "what came live during a replay is delivered before its end",
        REPLAYS,
        "            replay = self._of.get(region_of(item))\n            if replay is not None:",
        "            replay = self._of.get(region_of(item))\n            if replay is not None and False:",
    ),
    Mutation(
        "an event of two regions is told to come by one that is replayed",
        INCOMING,
        "        if region in self._replays or region in self._states.asked:",
        "        if region in self._states.asked:",
    ),
    Mutation(
        "an event of several regions has a condition in the first one only",
        KEYS,
        "conditions = tuple(_condition(key, part, only_if) for part in range(len(several) or 1))",
        "conditions = tuple(_condition(key, part, only_if) for part in range(1))",
    ),
    Mutation(
        "a handover leaves the entity where it was, too",
        AUTHORITY,
        "        return await self._owners.decide(regions, payload, own | {there: left}, claim)",
        "        return await self._owners.decide((target,), payload, {there: left}, claim)",
    ),
    Mutation(
        "a release does not look who owns the entity",
        AUTHORITY,
        "                await self.publish((region,), None, key, {key: position})\n",
        "                await self._outgoing.publish(region, None, about_event(region, key, NO_CONDITION)[1])\n",
    ),
    Mutation(
        "an event of a live and a replayed region does not wait for the history",
        REPLAYS,
        "            if self._held or self._has_to_wait(item):",
        "            if self._held:",
    ),
    Mutation(
        "an event of several regions comes before the state of one that lacks it",
        STATES,
        "if coming is not None and (_epoch(item), part.last) > coming.standing.snapshots[part.region][0]:",
        "if False:",
    ),
    Mutation(
        "a region that was delivered before its marker came is said to begin at the marker",
        SUBSCRIBER,
        "begun = self.begin(region)",
        "begun = None",
    ),
)
