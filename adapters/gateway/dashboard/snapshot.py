"""What the dashboard shows of a network, from two surveys: JSON documents of bounded size.

Unbounded lists (regions, subscribers) are requested page by page; the rest is one summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from adapters.redis.examination import Examination, Finding
from adapters.redis.findings import judge
from adapters.redis.networkstate import ConnectionState, NetworkState, NodeState, RegionState

NODES_SHOWN, LINKS_SHOWN, ALERTS_SHOWN = 100, 200, 50
ROWS_MAX = 200
"""The maximum length of one page of a list."""
ATOMS_SHOWN, NAMES_SHOWN = 100, 200
"""How many atoms and subscribers of one region are shown."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """A network now. ``before``: ``apart_s`` earlier, to compute rates; at the first survey, it is the same state.

    ``at_ms``: Unix time; ``took_ms``: the duration of the survey.
    """

    before: NetworkState
    now: NetworkState
    apart_s: float
    at_ms: int
    took_ms: float

    def summary(self) -> Row:
        """Return the network as a whole: nodes, links, totals, alerts."""
        plan, transition, now = self.now.plan, self.now.transition, self.now
        nodes = sorted(self.nodes, key=lambda row: (-row["events_per_s"], row["name"]))
        links = sorted(self.links, key=lambda row: (-row["events_per_s"], row["from"], row["to"]))
        alerts = self.alerts
        return {
            "at_ms": self.at_ms,
            "took_ms": round(self.took_ms, 1),
            "url": now.where,
            "plan": {"epoch": plan.epoch, "version": plan.version, "ordering": plan.ordering} if plan else None,
            "transition": asdict(transition) if transition is not None else None,
            "leader": {"token": now.leader or None, "lease_ms": now.lease_ms},
            "totals": {
                "events_per_s": _rounded(sum(self.rates.values())),
                "regions": len(now.regions),
                "busy_regions": sum(rate > 0 for rate in self.rates.values()),
                "behind": sum(row["behind"] or 0 for row in self.regions.values()),
                "atoms": len(plan.atoms) if plan is not None else 0,
                "nodes": len(now.nodes),
                "nodes_answering": sum(node.server is not None for node in now.nodes),
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
        """Region → events that its ingress numbered per second, markers included.

        Only regions that both surveys have.
        """
        drawn = {region.name: region for region in self.before.regions}
        found = {}
        for region in self.now.regions:
            then = drawn.get(region.name)
            if self.apart_s <= 0 or region.drawn is None or then is None or then.drawn is None:
                continue
            since = then.drawn if then.epoch == region.epoch else 0  # a new epoch counts from 0
            found[region.name] = max(0, region.drawn - since) / self.apart_s
        return found

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """The doctor's findings; none at the first survey, which cannot show what is stuck."""
        if self.before is self.now:
            return ()
        return tuple(judge(Examination(self.before, self.now, round(self.apart_s, 1))))

    @property
    def alerts(self) -> list[Finding]:
        """The findings that need attention, problems first."""
        wrong = [finding for finding in self.findings if finding.level != "ok"]
        return sorted(wrong, key=lambda finding: finding.level != "problem")

    @cached_property
    def nodes(self) -> list[Row]:
        """One row for each node."""
        load: Counter[str] = Counter()
        visits: Counter[str] = Counter()
        entries: Counter[str] = Counter()
        exits: Counter[str] = Counter()
        for region in self.now.regions:
            entries[region.path[0]] += 1
            exits[region.path[-1]] += 1
            for name in region.path:
                visits[name] += 1
                load[name] += self.rates.get(region.name, 0.0)  # type: ignore[assignment]  # mypy's Counter counts wholes
        atoms = Counter(atom.node for atom in (self.now.plan.atoms if self.now.plan is not None else ()))
        return [
            _node(node)
            | {
                "events_per_s": _rounded(load[node.name]),
                "regions": visits[node.name],
                "ingress_of": entries[node.name],
                "egress_of": exits[node.name],
                "atoms": atoms[node.name],
            }
            for node in self.now.nodes
        ]

    @cached_property
    def links(self) -> list[Row]:
        """One row for each link that a path uses."""
        flow: dict[tuple[str, str], list[float]] = {}
        for region in self.now.regions:
            for link in pairwise(region.path):
                flow.setdefault(link, []).append(self.rates.get(region.name, 0.0))
        waiting = {
            (node.name, link.target.partition("#")[0]): link.frames for node in self.now.nodes for link in node.links
        }
        return [
            {
                "from": source,
                "to": target,
                "regions": len(rates),
                "events_per_s": _rounded(sum(rates)),
                "waiting_frames": waiting.get((source, target), 0),
            }
            for (source, target), rates in flow.items()
        ]

    @cached_property
    def regions(self) -> Mapping[str, Row]:
        """One row for each region."""
        subscribers = Counter(region for each in self.now.connections if each.alive for region in each.wanted)
        atoms_of = self.now.plan.atoms_of if self.now.plan is not None else {}
        return {
            region.name: _region(region)
            | {
                "events_per_s": _rounded(self.rates.get(region.name, 0.0)),
                "subscribers": subscribers[region.name],
                "atoms": len(atoms_of.get(region.name, ())),
            }
            for region in self.now.regions
        }

    @cached_property
    def subscribers(self) -> list[Row]:
        """One row for each connection that is registered in the network."""
        return [
            _subscriber(each) | {"events_per_s": _rounded(sum(self.rates.get(region, 0.0) for region in each.wanted))}
            for each in self.now.connections
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
                {"name": each.name, "waiting": name in each.waiting} for each in following[:NAMES_SHOWN]
            ],
        }

    def subscriber(self, name: str) -> Row | None:
        """Return one subscriber with its regions, None if it does not exist."""
        for each in self.now.connections:
            if each.name == name:
                waiting: AbstractSet[str] = each.waiting
                regions = sorted(each.wanted)[:NAMES_SHOWN]
                return _subscriber(each) | {"regions_list": [{"name": n, "waiting": n in waiting} for n in regions]}
        return None


REGION_ORDERS = ("name", "events_per_s", "behind", "subscribers", "atoms", "last", "kept", "hops")
SUBSCRIBER_ORDERS = ("name", "regions", "waiting", "heard_ms_ago", "events_per_s")


def page(rows: Iterable[Row], *, search: str, order: str, descending: bool, offset: int, limit: int) -> Row:
    """Return a part of a list: rows whose name contains ``search``, sorted by a column, then by name.

    Rows without a value come last in both directions.
    """
    wanted = search.casefold()
    found = sorted((row for row in rows if wanted in row["name"].casefold()), key=lambda row: row["name"])
    if order == "name":
        found = found[::-1] if descending else found
    else:
        figure: Callable[[Row], Any] = lambda row: row[order]  # noqa: E731
        known = [row for row in found if row[order] is not None]
        known.sort(key=figure, reverse=descending)
        found = known + [row for row in found if row[order] is None]
    return {"matching": len(found), "offset": offset, "rows": found[offset : offset + min(limit, ROWS_MAX)]}


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
        "waiting_frames": sum(link.frames for link in node.links),
    }


def _region(region: RegionState) -> Row:
    behind = None
    if region.drawn is not None and region.last is not None:
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
    }


def _rounded(value: float) -> float:
    """Return a value with three digits: that is enough, and keeps the documents small."""
    return float(f"{value:.3g}") if value < 1000 else round(value)
