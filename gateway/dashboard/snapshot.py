"""What the dashboard shows of a network, from two surveys: JSON documents of bounded size.

Unbounded lists (regions, subscribers) are requested page by page; the rest is one summary.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from adapters.redis.examination import Examination, Finding
from adapters.redis.findings import judge
from adapters.redis.networkstate import ConnectionState, NetworkState, NodeState, RegionState, without_egress
from adapters.redis.serverfindings import KEEPS_NOTHING
from adapters.wording import natural
from gateway.dashboard.holding import Arrived, Held, held
from gateway.dashboard.rates import (
    Life,
    Link,
    known_sum,
    link_rates,
    links_of,
    node_rates,
    region_rates,
    target_of,
)
from gateway.dashboard.trouble import (
    NO_TROUBLE,
    Trouble,
    forgotten,
    link_troubles,
    region_troubles,
    silent_nodes,
    urgency,
)
from gateway.lag import LAG_EVENTS_MIN, Lag

NODES_SHOWN, LINKS_SHOWN, ALERTS_SHOWN = 100, 200, 50
ROWS_MAX = 200
"""The maximum length of one page of a list."""
ATOMS_SHOWN, NAMES_SHOWN = 100, 200
"""How many atoms and subscribers of one region are shown."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A network now. ``before``: ``apart_s`` earlier; at the first survey, it is the same state.

    ``at_ms``: Unix time; ``took_ms``: the duration of the survey. ``answered_ms``: node → when it last answered, if
    it ever did.
    """

    before: NetworkState
    now: NetworkState
    apart_s: float
    at_ms: int
    took_ms: float
    answered_ms: Mapping[str, int] = field(default_factory=dict)
    arrived: Arrived = field(default_factory=Arrived)
    """As it was before this look."""
    delivered: Mapping[Life, float] = field(default_factory=dict)
    """Connection → events that it delivered per second, as it reported."""
    is_trial: bool = False
    """Whether the network is not meant to keep anything."""

    def summary(self) -> Row:
        """Return the network as a whole: nodes, links, totals, alerts."""
        plan, transition, now = self.now.plan, self.now.transition, self.now
        nodes = sorted(self.nodes, key=lambda row: (urgency(row), -(row["events_per_s"] or 0), natural(row["name"])))
        links = sorted(
            self.links,
            key=lambda row: (urgency(row), -(row["events_per_s"] or 0), natural(row["from"]), natural(row["to"])),
        )
        alerts = self.alerts
        return {
            "at_ms": self.at_ms,
            "took_ms": round(self.took_ms, 1),
            "url": now.where,
            "plan": {"epoch": plan.epoch, "version": plan.version, "ordering": plan.ordering} if plan else None,
            "transition": asdict(transition) if transition is not None else None,
            "leader": {"token": now.leader or None, "lease_ms": now.lease_ms, "where": _leader(now.leader)},
            "totals": {
                "events_per_s": _rounded(self.events_per_s),
                "regions": len(now.regions),
                "busy_regions": self._busy_regions,
                "stuck_regions": len(self.stuck),
                "held_regions": len(self.held.regions),
                "held_subscribers": len(self.held.subscribers),
                "held_unknown": self.held.unexamined,
                "behind": self.behind,
                "rates_unknown": len(now.regions) - len(self.rates),
                "behind_unknown": sum(row["behind"] is None for row in self.regions.values()),
                "atoms": len(plan.atoms) if plan is not None else 0,
                "nodes": len(now.nodes),
                "nodes_answering": len(now.nodes) - len(self.silent),
                "nodes_silent": self.silent[:NODES_SHOWN],
                "silent_since_ms": self._silent_since_ms,
                "links": len(links),
                "subscribers": len(self.subscribers),
                "subscribers_alive": sum(row["alive"] for row in self.subscribers),
                "path_nodes": _rounded(sum(len(r.path) for r in now.regions) / len(now.regions)) if now.regions else 0,
            },
            "nodes": nodes[:NODES_SHOWN],
            "links": links[:LINKS_SHOWN],
            "alerts": [asdict(alert) for alert in alerts[:ALERTS_SHOWN]],
            "alerts_total": len(alerts),
            "checks_fine": len(self.findings) - len(alerts),
        }

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Region → events that its ingress numbered per second; see `region_rates`."""
        return region_rates(self.before, self.now)

    @cached_property
    def events_per_s(self) -> float | None:
        """The sum of the known rates, None if none is known."""
        return known_sum(self.rates.get(region.name) for region in self.now.regions)

    @cached_property
    def behind(self) -> float | None:
        """Events that are numbered and have not reached their egress, at least; None if nothing is known.

        Frames that wait on links are on their way, too, also where the egress does not answer.
        """
        known = known_sum(row["behind"] for row in self.regions.values())
        waiting = known_sum(row["waiting_frames"] for row in self.links)
        if known is None and not waiting:
            return None
        return max(known or 0, waiting or 0)

    @cached_property
    def silent(self) -> list[str]:
        """The nodes that did not answer."""
        return sorted(silent_nodes(self.now), key=natural)

    @property
    def _silent_since_ms(self) -> int | None:
        """When the last node of those that are silent now answered; None if one never did."""
        since = [self.answered_ms.get(name) for name in self.silent]
        return None if not since or None in since else min(at for at in since if at is not None)

    @property
    def _busy_regions(self) -> int | None:
        """The number of regions with a rate, None if no rate is known."""
        return sum(rate > 0 for rate in self.rates.values()) if self.rates or not self.now.regions else None

    @cached_property
    def _forgotten(self) -> Mapping[str, AbstractSet[str]]:
        return forgotten(self.before, self.now)

    @cached_property
    def link_troubles(self) -> Mapping[Link, Trouble]:
        """Link → why it is stuck or behind."""
        return link_troubles(self.before, self.now)

    @cached_property
    def region_troubles(self) -> Mapping[str, Trouble]:
        """Region → why it is stuck or behind."""
        return dict(region_troubles(self.before, self.now, self.link_troubles))

    @cached_property
    def stuck(self) -> Mapping[str, Trouble]:
        """The regions that are stuck, and where."""
        return {name: trouble for name, trouble in self.region_troubles.items() if trouble.condition == "stuck"}

    @cached_property
    def held(self) -> Held:
        """Who waits for these."""
        return held(self.now, self.stuck, self.arrived, time.monotonic) if self.stuck else Held()

    def _places(self, regions: Iterable[str]) -> list[str]:
        """Return where regions are stuck."""
        return sorted({at for name in regions if name in self.region_troubles for at in self.region_troubles[name].at})

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """The doctor's findings; none at the first survey, which cannot show what is stuck."""
        if self.before is self.now:
            return ()
        found = judge(Examination(self.before, self.now, round(self.apart_s, 1)))
        return tuple(each for each in found if not (self.is_trial and each.seen.startswith(KEEPS_NOTHING)))

    @property
    def alerts(self) -> list[Finding]:
        """The findings that need attention, problems first."""
        wrong = [finding for finding in self.findings if finding.level != "ok"]
        return sorted(wrong, key=lambda finding: finding.level != "problem")

    @cached_property
    def nodes(self) -> list[Row]:
        """One row for each node."""
        rates = node_rates(self.before, self.now, self.rates)
        visits = Counter(name for region in self.now.regions for name in region.path)
        entries = Counter(region.path[0] for region in self.now.regions)
        exits = Counter(region.path[-1] for region in self.now.regions)
        atoms = Counter(atom.node for atom in (self.now.plan.atoms if self.now.plan is not None else ()))
        return [
            _node(node)
            | {
                "since_ms": self.answered_ms.get(node.name) if node.server is None else None,
                "condition": self._condition(node),
                "events_per_s": _rounded(rates.get(node.name)),
                "regions": visits[node.name],
                "ingress_of": entries[node.name],
                "egress_of": exits[node.name],
                "atoms": atoms[node.name],
            }
            for node in self.now.nodes
        ]

    def _condition(self, node: NodeState) -> str | None:
        if node.server is None or node.name in self._forgotten:
            return "stuck"
        return "behind" if any(target == node.name for _, target in self.link_troubles) else None

    @cached_property
    def links(self) -> list[Row]:
        """One row for each link that a path uses."""
        rates = link_rates(self.before, self.now)
        answering = {node.name for node in self.now.nodes if node.read_at_s is not None}
        waiting: Counter[Link] = Counter()
        for node in self.now.nodes:
            for each in node.links:
                waiting[node.name, target_of(each)] += each.frames
        return [
            {
                "from": link[0],
                "to": link[1],
                "regions": regions,
                "events_per_s": _rounded(rates.get(link)),
                "waiting_frames": waiting[link] if link[0] in answering else None,
            }
            | self._trouble(self.link_troubles.get(link))
            for link, regions in links_of(self.now).items()
        ]

    @staticmethod
    def _trouble(trouble: Trouble | None) -> Row:
        return trouble.row() if trouble is not None else NO_TROUBLE

    @cached_property
    def regions(self) -> Mapping[str, Row]:
        """One row for each region."""
        subscribers = Counter(region for each in self.now.connections if each.alive for region in each.wanted)
        atoms_of = self.now.plan.atoms_of if self.now.plan is not None else {}
        forgotten_there = without_egress(self.now)
        return {
            region.name: _region(region, has_egress=region.name not in forgotten_there)
            | {
                "events_per_s": _rounded(self.rates.get(region.name)),
                "subscribers": subscribers[region.name],
                "atoms": len(atoms_of.get(region.name, ())),
            }
            | self._of_region(region.name)
            for region in self.now.regions
        }

    def _of_region(self, name: str) -> Row:
        """Return the trouble of a region: its own, or that it is held for some of its subscribers."""
        count, by = self.held.regions.get(name, (0, ()))
        row: Row = {"held_for": count, "held_by": list(by)}
        if count and name not in self.stuck:
            return row | {"condition": "held", "stuck_at": self._places(by)}
        return row | self._trouble(self.region_troubles.get(name))

    @cached_property
    def subscribers(self) -> list[Row]:
        """One row for each connection that is registered in the network."""
        return [self._of_subscriber(each) for each in self.now.connections]

    def _of_subscriber(self, each: ConnectionState) -> Row:
        waits, by = self.held.of(each.name)
        stuck = each.wanted & self.stuck.keys() if each.alive else frozenset()
        return _subscriber(each) | {
            "condition": "held" if waits else "stuck" if stuck else None,
            "stuck_at": self._places(by or stuck),
            "stuck_regions": len(stuck),
            "held_regions": len(waits),
            "held_by": list(by),
            "events_per_s": self._wanted_rate(each.wanted),
            "delivered_per_s": _rounded(self.delivered.get((each.name, each.incarnation))),
        }

    def _wanted_rate(self, regions: Iterable[str]) -> float | None:
        """Return the events per second of some regions, None if the rate of one is unknown."""
        rates = [self.rates.get(region) for region in regions]
        return None if None in rates else _rounded(known_sum(rates))

    def lagging(self, lags: Iterable[Lag]) -> list[Row]:
        """Return a row for each reader of this gateway that is behind, and for each other game server that says that
        events wait in it, or that order holds."""
        mine = [
            {
                "name": lag.name,
                "where": "this gateway",
                "behind": lag.behind,
                "behind_s": _rounded(lag.behind / rate) if (rate := self._wanted_rate(lag.regions)) else None,
                "inbox": lag.inbox,
                "held": lag.held,
                "regions": len(lag.regions) or None,
                "stuck_regions": sum(region in self.region_troubles for region in lag.regions),
                "held_regions": len(self.held.of(lag.name)[0]),
            }
            for lag in lags
        ]
        known = {row["name"] for row in mine}
        return mine + [
            {
                "name": row["name"],
                "where": "game server",
                "behind": None if row["queued"] is None else row["queued"] + row["held"],
                "behind_s": None,
                "inbox": row["queued"],
                "held": row["held"],
                "regions": row["regions"],
                "stuck_regions": row["stuck_regions"],
                "held_regions": row["held_regions"],
            }
            for row in self.subscribers
            if row["alive"] and row["name"] not in known and _is_behind(row)
        ]

    def region(self, name: str) -> Row | None:
        """Return one region with its atoms and subscribers, None if it does not exist."""
        row = self.regions.get(name)
        if row is None:
            return None
        atoms = self.now.plan.atoms_of.get(name, ()) if self.now.plan is not None else ()
        following = [each for each in self.now.connections if each.alive and name in each.wanted]
        return row | {
            "atoms_list": [
                {
                    "id": atom.id,
                    "node": atom.node,
                    "with": [other for other in atom.regions if other != name][:NAMES_SHOWN],
                }
                for atom in atoms[:ATOMS_SHOWN]
            ],
            "subscribers_list": [
                {
                    "name": each.name,
                    "waiting": name in each.waiting,
                    "held": name in self.held.of(each.name)[0],
                }
                for each in following[:NAMES_SHOWN]
            ],
        }

    def subscriber(self, name: str) -> Row | None:
        """Return one subscriber with its regions, None if it does not exist."""
        for each in self.now.connections:
            if each.name == name:
                row = self._of_subscriber(each)
                waits, _ = self.held.of(name)
                state = dict.fromkeys(waits, "held") | dict.fromkeys(self.stuck.keys() & each.wanted, "stuck")
                first = sorted(each.wanted, key=lambda region: (region not in state, natural(region)))[:NAMES_SHOWN]
                return row | {
                    "regions_list": [
                        {"name": region, "waiting": region in each.waiting, "condition": state.get(region)}
                        for region in first
                    ]
                }
        return None


REGION_ORDERS = ("name", "events_per_s", "behind", "subscribers", "atoms", "last", "kept", "hops", "condition")
SUBSCRIBER_ORDERS = (
    "name",
    "condition",
    "regions",
    "waiting",
    "held_regions",
    "queued",
    "held",
    "delivered_per_s",
    "events_per_s",
    "heard_ms_ago",
)
LAGGING_ORDERS = ("name", "where", "behind", "behind_s", "inbox", "held", "regions")


def page(rows: Iterable[Row], *, search: str, order: str, descending: bool, offset: int, limit: int) -> Row:
    """Return a part of a list: rows whose name contains ``search``, sorted by a column, then by name.

    Rows without a value come last in both directions. In any order, rows that are stuck or behind come first.
    """
    wanted = search.casefold()
    matching = sorted((row for row in rows if wanted in row["name"].casefold()), key=lambda row: natural(row["name"]))
    if order == "name":
        matching = matching[::-1] if descending else matching
    else:
        figure: Callable[[Row], Any] = lambda row: row[order]  # noqa: E731
        known = [row for row in matching if row[order] is not None]
        known.sort(key=figure, reverse=descending)
        matching = known + [row for row in matching if row[order] is None]
    matching.sort(key=urgency)
    return {"matching": len(matching), "offset": offset, "rows": matching[offset : offset + min(limit, ROWS_MAX)]}


def _node(node: NodeState) -> Row:
    server = node.server
    return {
        "name": node.name,
        "where": node.where,
        "answers": server is not None,
        "trouble": node.trouble,
        "planned": node.planned,
        "lacking": len(node.lacking),
        "version": server.version if server is not None else None,
        "memory_bytes": server.memory_bytes if server is not None else None,
        "memory_bytes_max": (server.memory_bytes_max or None) if server is not None else None,
        "round_trip_ms": _rounded(server.round_trip_ms) if server is not None and server.round_trip_ms else None,
        "waiting_frames": sum(link.frames for link in node.links) if node.read_at_s is not None else None,
    }


def _region(region: RegionState, *, has_egress: bool) -> Row:
    behind = None
    if has_egress and region.drawn is not None and region.last is not None:
        behind = max(0, region.drawn - region.last)
    return {
        "name": region.name,
        "path": list(region.path),
        "hops": len(region.path),
        "epoch": region.epoch,
        "last": region.last,
        "behind": behind,
        "kept": region.frames,
    }


def _subscriber(each: ConnectionState) -> Row:
    return {
        "name": each.name,
        "regions": len(each.wanted),
        "waiting": len(each.waiting),
        "alive": each.alive,
        "heard_ms_ago": each.heard_ms_ago,
        "delivered": each.doing.delivered if each.doing is not None else None,
        "held": each.doing.held if each.doing is not None else None,
        "queued": each.doing.queued if each.doing is not None else None,
    }


def _is_behind(row: Row) -> bool:
    """Whether a game server is behind: something stands still there, or much waits for its program."""
    return bool(row["held_regions"] or (row["queued"] or 0) + (row["held"] or 0) >= LAG_EVENTS_MIN)


def _leader(token: str | None) -> str | None:
    """Return which process leads, as people name it: a token is host, process and something drawn."""
    host, _, rest = (token or "").partition(":")
    process, _, drawn = rest.partition(":")
    return f"{host}, process {process}" if drawn else None


def _rounded(value: float | None) -> float | None:
    """Return a value with three digits: that is enough, and keeps the documents small. Unknown stays unknown."""
    if value is None:
        return None
    return float(f"{value:.3g}") if value < 1000 else round(value)
