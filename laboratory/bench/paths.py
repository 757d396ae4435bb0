"""The cost of a longer path: the same events over one node and over several that each of them visits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table

from laboratory.bench.campaign import CEILING, COST, MEASURES, Campaign, document, values_of
from laboratory.bench.cpu import PARTS, cores_in_words
from laboratory.bench.figures import ratios
from laboratory.bench.peers.path import PathPeer
from laboratory.bench.stamps import measure_script, measure_stamps
from laboratory.bench.table import table_of
from laboratory.bench.workload import FAN_OUT, Phases


def measure_paths(
    longest: int, *, size: int, runs: int, phases: Phases, begin: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Run trials of paths of 1 … ``longest`` nodes by turns; return what ``gamecast bench paths --json`` prints.

    ``size``: subscribers, and regions. Blocks for minutes; raises as `run_trial` does.
    """
    lengths = range(1, longest + 1)
    peers = [PathPeer(f"{length} node{'s' if length > 1 else ''}", length) for length in lengths]
    campaign = Campaign(peers=tuple(peers), sizes=(size,), runs=runs, phases=phases)
    measured = document(campaign.run(begin), campaign, peers[0].name)
    paths = {str(peer.nodes): measured["peers"][peer.name][str(size)] for peer in peers}
    stamps = asyncio.run(measure_stamps(lengths))
    script = asyncio.run(measure_script())
    return {
        "paths": paths,
        "ratios": {measure: _to_one_node(paths, measure) for measure in (*MEASURES, COST, CEILING)},
        "per_hop": {length: _per_hop(paths["1"], figures, int(length) - 1) for length, figures in paths.items()},
        "stamps": [asdict(cost) for cost in stamps],
        "script": script,
        **{key: measured[key] for key in ("cores", "versions", "workload")},
    }


def _to_one_node(paths: Mapping[str, Mapping[str, Any]], measure: str) -> dict[str, float]:
    values = values_of(paths, measure)
    return ratios(values, dict.fromkeys(values, values["1"]))


def _per_hop(one: Mapping[str, Any], figures: Mapping[str, Any], hops: int) -> dict[str, float]:
    """Return the cost of each hop: µs of CPU an event at full speed, and ms of delay of the paced ones."""
    if not hops:
        return {}
    added_us = {part: (figures[COST][part] - one[COST][part]) * FAN_OUT / hops for part in PARTS}
    return {
        "cpu_us_per_event": (figures[COST]["all"] - one[COST]["all"]) * FAN_OUT / hops,
        **{f"{part}_cpu_us_per_event": added for part, added in added_us.items()},
        **{measure: (figures[measure] - one[measure]) / hops for measure in ("p50_ms", "p95_ms", "p99_ms")},
    }


def report(result: Mapping[str, Any]) -> Group:
    """Tables of 80 columns, and what the columns mean."""
    workload = result["workload"]
    note = (
        f"Every event visits all nodes of its path, each a redis-server of its own, with a\n"
        f"relay process between two. {workload['events']:,} events at full speed, then\n"
        f"{workload['rate_per_s']:,} events/s; medians of {workload['runs']}. x: in multiples of one node's.\n"
        f"allows: the deliveries/s that {cores_in_words(result['cores'])} would allow at these costs, if they had\n"
        "nothing else to do. A hop: what each node after the first adds. µs are those of an\n"
        "event, which has 3 subscribers."
    )
    return Group(*_tables(result), note)


def _tables(result: Mapping[str, Any]) -> Iterator[Table]:
    headings: Sequence[str]
    headings = "deliveries\nper s", "\nx", "p50\nms", "\nx", "p95\nms", "p99\nms", "\nx"
    yield table_of("\npath", headings, _speed_rows(result))
    headings = "pub\nµs", "server\nµs", "relay\nµs", "sub\nµs", "CPU µs\nan event", "\nx", "allows\nper s", "\nx"
    yield table_of("\nCPU", headings, _cost_rows(result))
    if len(result["paths"]) > 1:
        yield table_of("\na hop adds", ("CPU µs\nan event", "p50\nms", "p99\nms"), _hop_rows(result))
    headings = "script\nµs", "its calls\nalone, µs", "stamp\nbytes"
    yield table_of("\nregions beside it, one node", headings, _script_rows(result))
    links = [f"on a link,\n{length} nodes" for length in sorted({cost["nodes"] for cost in result["stamps"]} - {1})]
    yield table_of("\natoms passed", ("stamp\nbytes", "frame bytes\nbut events", *links), _stamp_rows(result))


def _speed_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for length, figures in result["paths"].items():
        yield (
            _path(length),
            f"{figures['deliveries_per_s']:,.0f}",
            _ratio(result, "deliveries_per_s", length),
            f"{figures['p50_ms']:.2f}",
            _ratio(result, "p50_ms", length),
            f"{figures['p95_ms']:.2f}",
            f"{figures['p99_ms']:.2f}",
            _ratio(result, "p99_ms", length),
        )


def _cost_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for length, figures in result["paths"].items():
        yield (
            _path(length),
            *(f"{figures[COST][part] * FAN_OUT:.2f}" for part in (*PARTS, "all")),
            _ratio(result, COST, length),
            f"{figures[CEILING]:,.0f}",
            _ratio(result, CEILING, length),
        )


def _hop_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for length, hop in result["per_hop"].items():
        if hop:
            yield (_path(length), *(f"{hop[key]:.2f}" for key in ("cpu_us_per_event", "p50_ms", "p99_ms")))


def _script_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for count, cost in result["script"].items():
        yield (count, f"{cost['script_us']:.1f}", f"{cost['calls_us']:.1f}", f"{cost['stamp_bytes']:.1f}")


def _stamp_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    by_atoms: dict[int, list[Mapping[str, Any]]] = {}
    for cost in result["stamps"]:
        by_atoms.setdefault(cost["atoms"], []).append(cost)
    for atoms, costs in by_atoms.items():
        links = [f"{cost['link_bytes']:.0f}" for cost in costs if cost["nodes"] > 1]
        yield (str(atoms), f"{costs[0]['stamp_bytes']:.1f}", f"{costs[0]['frame_bytes']:.1f}", *links)


def _ratio(result: Mapping[str, Any], measure: str, length: str) -> str:
    value = result["ratios"][measure].get(length)
    return "" if value is None or length == "1" else f"{value:.2f}"


def _path(length: str) -> str:
    return f"{length} node{'s' if length != '1' else ''}"
