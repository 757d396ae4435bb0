"""What leaders announce, as the control Redis stores it: the plan in rows, and the news, each as a difference.

The rows say where each region is and which atoms there are; a connection reads them once. From then on it reads the
news: each entry says what has changed since the one before, and for whom. So what an announcement costs follows what
it changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from adapters.redis.controlkeys import ControlKeys
from sequencing.errors import PlanError
from sequencing.identity import KeptFor, differing
from sequencing.joint import is_set
from sequencing.plan import Plan
from sequencing.planchange import NOTHING, change_between, changed
from sequencing.record import WIRE, Interest, Members, Record

Pipeline = Callable[[Sequence[tuple[Any, ...]]], Awaitable[Sequence[Any]]]

PLANS_KEPT = 16
"""How many recently read plans the connections of this process share."""

_MARK = b"\n[%d,0]\n" % WIRE
"""Begins what is stored: from before version 4, others look for the wire version in the second line."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a plan counts for a name, and the last interest that it knew."""

    heard: Interest | None = None
    regions: frozenset[str] = frozenset()


class PeopleChange(NamedTuple):
    """What changes for a name: what was heard of it last, and the regions that are counted from now on or no more.

    ``is_whole``: whether it had none before, as far as this connection of it is concerned.
    """

    heard: Interest | None
    joined: frozenset[str]
    left: frozenset[str]
    is_whole: bool

    @classmethod
    def between(cls, before: Standing, after: Standing) -> PeopleChange:
        """Return the change from one standing to another."""
        one, other = before.heard, after.heard
        is_whole = one is None or other is None or one.incarnation != other.incarnation
        known = frozenset[str]() if is_whole else before.regions
        return cls(other, after.regions - known, known - after.regions, is_whole)

    def after(self, before: Standing) -> Standing:
        """Return the standing that follows another one."""
        known = frozenset[str]() if self.is_whole else before.regions
        return Standing(self.heard, (known - self.left) | self.joined)


People = Mapping[str, PeopleChange]


class Told(NamedTuple):
    """One announcement: the plan, the parts of the plans before it that end, and what changes for whom.

    ``born``: the regions that have a place for the first time, and the sets that the plan has for the first time.
    ``is_growth``: whether nothing else changes in the plan.
    """

    plan: Plan
    behind: tuple[Plan, ...] = ()
    people: People = MappingProxyType({})
    born: frozenset[str] = frozenset()
    is_growth: bool = False


class Viewpoint:
    """What is announced, as one connection sees it: most of it concerns others."""

    def __init__(self) -> None:
        """Of a connection that has no name yet; see `belong_to`."""
        self._name, self._connection = "", 0
        self._standing = Standing()
        self._placing: frozenset[str] = frozenset()

    def belong_to(self, name: str, connection: int) -> None:
        """Be that of a connection, by its name and incarnation."""
        self._name, self._connection = name, connection

    def await_places(self, regions: frozenset[str]) -> None:
        """Be concerned by these regions' first places."""
        self._placing = regions

    @property
    def awaits_places(self) -> bool:
        """Whether some of these have none yet, as far as this connection knows."""
        return bool(self._placing)

    def concerns(self, told: Told) -> bool:
        """Return whether an announcement has news for the connection."""
        return not told.is_growth or self._name in told.people or not self._placing.isdisjoint(told.born)

    def record(self, told: Told) -> Record:
        """Return an announcement, each in its turn, as a record for the connection alone.

        What an earlier connection of its name has does not matter.
        """
        change = told.people.get(self._name)
        if change is not None and (change.heard is None or change.heard.incarnation >= self._connection):
            self._standing = change.after(self._standing)
        self._placing = told.plan.without_place(self._placing)
        standing = self._standing
        members: Members = {self._name: standing.regions} if standing.regions else {}
        heard = {self._name: standing.heard} if standing.heard is not None else {}
        return Record(told.plan, members, heard, told.behind, born=told.born)


def with_people(record: Record, standings: Mapping[str, Standing]) -> Record:
    """Return a record with what is counted for each name."""
    return replace(
        record,
        members={name: each.regions for name, each in standings.items() if each.regions},
        heard={name: each.heard for name, each in standings.items() if each.heard is not None},
    )


def people_between(before: Record | None, after: Record) -> Mapping[str, PeopleChange]:
    """Return what changes for whom between two records."""
    old = before if before is not None else _NO_RECORD
    if old.members is after.members and old.heard is after.heard:
        return {}
    return _people_between(old.members, old.heard, after.members, after.heard)


_NO_RECORD = Record(NOTHING)


@KeptFor
def _people_between(
    members_before: Members, heard_before: Mapping[str, Interest], members: Members, heard: Mapping[str, Interest]
) -> Mapping[str, PeopleChange]:
    changes: dict[str, PeopleChange] = {}
    for name in sorted(differing(members_before, members) | differing(heard_before, heard)):
        one = Standing(heard_before.get(name), members_before.get(name, frozenset()))
        other = Standing(heard.get(name), members.get(name, frozenset()))
        if one.regions != other.regions or heard_text(one.heard) != heard_text(other.heard):
            changes[name] = PeopleChange.between(one, other)
    return changes


def heard_text(heard: Interest | None) -> bytes:
    """Return what is stored of an interest that a plan knew: not the regions."""
    return b"%d %d %d" % (heard.incarnation, heard.said, heard.floor) if heard is not None else b""


def read_heard(text: bytes) -> Interest | None:
    """Return the interest of a text of `heard_text`, without its regions."""
    if not text:
        return None
    try:
        incarnation, said, floor = map(int, text.split())
    except ValueError as error:
        raise PlanError(f"this is not what a gamecast network has heard: {text[:40]!r}") from error
    return Interest(incarnation, said, {}, floor)


def number_of(plan: Plan | None) -> str:
    """Return the number of a plan, as it is an id in the news."""
    return f"{plan.epoch}-{plan.version}" if plan is not None else ""


def plan_of(record: Record | None) -> Plan:
    """Return the plan of a record, or the one before the first."""
    return record.plan if record is not None else NOTHING


class Announcement(NamedTuple):
    """What announces a record: the entry of the news, what is stored of its plan beside rows, and the commands that
    change the rows.

    ``names``: those that it concerns; None: all.
    """

    news: bytes
    head: bytes
    rows: list[tuple[Any, ...]]
    names: frozenset[str] | None


def announcement(before: Record | None, after: Record, token: str) -> Announcement:
    """Return what announces a record after another; ``token``: of this announcement alone."""
    told = after.news()
    plan, change = told.plan, change_between(plan_of(before), told.plan)
    behind = [each.to_document() for each in told.behind]
    news: dict[str, Any] = {"after": number_of(before.plan if before is not None else None), "plan": change}
    if behind:
        news["behind"] = behind
    if people := people_between(before, told):
        news["people"] = people_document(people)
    bare = plan if plan.sole else replace(plan, paths={}, epochs={}, atoms=(), joint=frozenset())
    head = {"plan": change_between(NOTHING, bare), "behind": behind, "token": token}
    names = frozenset(people) if _is_growth(change, plan_of(before)) else None
    return Announcement(_MARK + orjson.dumps(news), _MARK + orjson.dumps(head), _row_commands(change, plan), names)


class Entry(NamedTuple):
    """An entry of the news, as it was stored; ``after``: the number of the plan that it changes."""

    after: str
    plan: Any
    behind: Any
    people: Any
    text: bytes

    @property
    def stays_in_epoch(self) -> bool:
        """Whether it begins no epoch."""
        return self.after.startswith(f"{self.plan['epoch']}-")

    def with_next(self, later: Entry) -> Entry | None:
        """Return this entry and the next one as one; None unless both only grow the same epoch's plan.

        Who joins a region with its first place takes all of its events. Who joins it later may not, so such entries
        stay apart.
        """
        if not all(entry.plan.keys() <= _OF_GROWTH and entry.stays_in_epoch for entry in (self, later)):
            return None
        regions, more = self.plan.get("regions", {}), later.plan.get("regions", {})
        joint = [*self.plan.get("joint", ()), *later.plan.get("joint", ())]
        if later.after != f"{self.plan['epoch']}-{self.plan['version']}" or not regions.keys().isdisjoint(more):
            return None
        if not all(regions.keys().isdisjoint(joined) for _, joined, *_ in later.people.values()):
            return None
        people = dict(self.people)
        for name, entry in later.people.items():
            people[name] = _person_after(people[name], entry) if name in people else entry
        plan = {**later.plan, "regions": {**regions, **more}} | ({"joint": joint} if joint else {})
        return Entry(self.after, plan, later.behind, people, self.text + later.text)

    def told_after(self, before: Plan | None) -> Told:
        """Return what it announces to those who know the plan before it; raises `PlanError` if it is nonsense."""
        key, known = (self.text, before), before if before is not None else NOTHING
        plan = _kept_plan(key)
        if plan is None:
            plan = _keep(key, changed(known, self.plan))
        try:
            people = read_people(self.people)
            regions = self.plan.get("regions", {})
            born = frozenset(region for region in regions if region not in known.paths).union(
                self.plan.get("joint", ())
            )
            is_growth = _is_growth(self.plan, known)
            return Told(plan, tuple(map(Plan.from_document, self.behind)), people, born, is_growth)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(f"this is not the news of a gamecast network: {error!r}") from error


_OF_GROWTH = {"epoch", "version", "regions", "joint"}


def _is_growth(change: Mapping[str, Any], before: Plan) -> bool:
    regions = change.get("regions", ())
    return change.keys() <= _OF_GROWTH and change["epoch"] == before.epoch and before.paths.keys().isdisjoint(regions)


def together(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries of the news, those in a row that only place new regions or count regions for names as one."""
    one: Entry | None = None
    for entry in entries:
        joined = one.with_next(entry) if one is not None else None
        if one is not None and joined is None:
            yield one
        one = joined or entry
    if one is not None:
        yield one


def read_entry(text: bytes) -> Entry:
    """Parse an entry of the news; raises `PlanError` if it is of another version, or nonsense."""
    document = _document(text)
    try:
        return Entry(document["after"], document["plan"], document.get("behind", ()), document.get("people", {}), text)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"this is not the news of a gamecast network: {error!r}") from error


def _row_commands(document: Mapping[str, Any], after: Plan) -> list[tuple[Any, ...]]:
    regions: Mapping[str, Any] = document.get("regions", {})
    here = {region: entry for region, entry in regions.items() if entry is not None}
    commands = write_all("HSET", ControlKeys.regions, [(r, b" ".join(map(_bytes, entry))) for r, entry in here.items()])
    commands += write_all("HDEL", ControlKeys.regions, [(region,) for region in regions.keys() - here.keys()])
    atoms = {atom.id: atom for atom in after.atoms}
    rows = [
        (number, orjson.dumps([atoms[number].node, *atoms[number].regions])) for number, *_ in document.get("atoms", ())
    ]
    commands += write_all("HSET", ControlKeys.atoms, rows)
    commands += write_all("HDEL", ControlKeys.atoms, [(number,) for number in document.get("gone", ())])
    joint = document.get("joint", ())
    commands += write_all("HSET", ControlKeys.regions, [(name, "") for name in joint])
    commands += write_all("HDEL", ControlKeys.regions, [(name,) for name in document.get("apart", ())])
    commands += write_all("SREM", ControlKeys.published, [(name,) for name in (*here, *joint)])
    return commands


ARGUMENTS_MAX = 4_000
"""A script can unpack no more than some 8,000 arguments."""


def write_all(verb: str, key: str, items: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return a command for all items, or some commands for a part of them each."""
    if not items:
        return []
    a_call = ARGUMENTS_MAX // len(items[0])
    return [
        (verb, key, *(value for item in items[start : start + a_call] for value in item))
        for start in range(0, len(items), a_call)
    ]


async def read_announced(pipeline: Pipeline) -> Record | None:
    """Return what was announced last, without what it counts for whom; None if nothing was.

    Raises `PlanError` if it is of another version, or nonsense.
    """
    (head,) = await pipeline([("GET", ControlKeys.plan)])
    if not head:
        return None
    if (plan := _kept_plan((head, None))) is not None:
        return Record(plan, behind=_behind(_document(head)))
    # All of one moment: from the second on the same head belongs to the same rows.
    commands = [("GET", ControlKeys.plan), ("HGETALL", ControlKeys.regions), ("HGETALL", ControlKeys.atoms)]
    *_, rows = await pipeline([("MULTI",), *commands, ("EXEC",)])
    if not rows or not rows[0]:
        return None
    head, regions, atoms = rows
    document = _document(head)
    return Record(_keep((head, None), _plan(document, regions, atoms)), behind=_behind(document))


def _plan(document: Any, regions: Sequence[bytes], atoms: Sequence[bytes]) -> Plan:
    rows: dict[str, list[Any]] = {}
    try:
        joint: list[str] = []
        for region, entry in zip(map(bytes.decode, regions[::2]), regions[1::2], strict=True):
            if is_set(region):
                joint.append(region)
                continue
            epoch, *path = entry.decode().split(" ")
            rows[region] = [int(epoch), *path]
        fresh = []
        for number, entry in sorted(zip(map(int, atoms[::2]), atoms[1::2], strict=True)):
            node, *members = orjson.loads(entry)
            fresh.append([number, node, members])
        return changed(NOTHING, {**document["plan"], "regions": rows, "atoms": fresh, "joint": joint})
    except (KeyError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise PlanError(f"this is not the plan of a gamecast network: {error!r}") from error


def _behind(document: Any) -> tuple[Plan, ...]:
    try:
        return tuple(map(Plan.from_document, document["behind"]))
    except (KeyError, TypeError) as error:
        raise PlanError(f"this is not the plan of a gamecast network: {error!r}") from error


def _document(text: bytes) -> Any:
    if not text.startswith(_MARK):
        _require_wire(text)
    try:
        return orjson.loads(text.removeprefix(_MARK))
    except ValueError as error:
        raise PlanError(f"this is not the plan of a gamecast network: {error!r}") from error


def _require_wire(text: bytes) -> None:
    """Raise the error about what another version has stored, as far as it can be told."""
    try:
        wire = orjson.loads(text.split(b"\n", 2)[1])[0]
    except (ValueError, IndexError, TypeError, KeyError):
        raise PlanError(f"this is not the plan of a gamecast network: it begins with {text[:40]!r}") from None
    raise PlanError(wire_message(wire))


def wire_message(wire: object) -> str:
    """Return the message about a network of another wire version."""
    return (
        f"this network's wire is of version {wire}, and this gamecast speaks version {WIRE}: take one gamecast for "
        "all of a network, or begin a new one under another URL"
    )


def _person_document(change: PeopleChange) -> list[Any]:
    return [heard_text(change.heard).decode(), sorted(change.joined), sorted(change.left), int(change.is_whole)]


def _read_person(entry: Any) -> PeopleChange:
    heard, joined, left, is_whole = entry
    return PeopleChange(read_heard(heard.encode()), frozenset(joined), frozenset(left), bool(is_whole))


def _person_after(first: Any, then: Any) -> list[Any]:
    """Return two changes of a name, as they are stored, as one."""
    one, other = _read_person(first), _read_person(then)
    standing = other.after(one.after(Standing()))
    left = frozenset() if other.is_whole else (one.left | other.left) - standing.regions
    return _person_document(PeopleChange(other.heard, standing.regions, left, one.is_whole or other.is_whole))


def people_document(people: People) -> dict[str, Any]:
    """Return changes as values for JSON; `read_people` is the inverse."""
    return {name: _person_document(change) for name, change in people.items()}


def read_people(document: Any) -> dict[str, PeopleChange]:
    """Return the changes of `people_document`."""
    return {name: _read_person(entry) for name, entry in document.items()}


def _bytes(value: Any) -> bytes:
    return str(value).encode()


_plans: list[tuple[tuple[bytes, Plan | None], Plan]] = []
"""What was read and the plan before it → the plan; newest last."""


def _kept_plan(key: tuple[bytes, Plan | None]) -> Plan | None:
    text, before = key
    return next((plan for (known, base), plan in reversed(_plans) if base is before and known == text), None)


def _keep(key: tuple[bytes, Plan | None], plan: Plan) -> Plan:
    _plans.append((key, plan))
    del _plans[:-PLANS_KEPT]
    return plan
