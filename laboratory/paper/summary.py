"""The results of many runs, as the document that `gamecast lab simulate paper --json` prints and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laboratory.paper.curves import ALONE, CLAIMED_WORST, LEVELLING, PEAK, Curve
from laboratory.paper.experiment import SCHEMES, Run
from laboratory.placing.baselines import vector_bytes
from placement.topology import FloatArray

DIGITS = 4


def document(runs: Sequence[Run], seeds: Sequence[int], *, subscribers: int) -> dict[str, Any]:
    """Return the stretch by groups and scheme, and beside it loads, sizes, seconds and seeds.

    ``p50``, ``p90``, ``max`` are over the destinations of all runs together, of the ratio of means; see `_of_scheme`
    for the others.
    """
    numbers = sorted({run.groups for run in runs})
    return {
        "groups": {str(groups): _of_groups([run for run in runs if run.groups == groups]) for groups in numbers},
        "loads": {str(groups): _loads([run for run in runs if run.groups == groups]) for groups in numbers},
        "against_lower_bound": {
            str(groups): against_bound([run for run in runs if run.groups == groups]) for groups in numbers
        },
        "vector_bytes": vector_bytes(subscribers),
        "seeds": list(seeds),
    }


def _of_groups(runs: Sequence[Run]) -> dict[str, Any]:
    return {scheme: _of_scheme(runs, scheme) for scheme in SCHEMES}


def _of_scheme(runs: Sequence[Run], scheme: str) -> dict[str, Any]:
    """``worst_of_run``: each run's worst destination, as mean and 90th percentile over the runs."""
    found = [run.schemes[scheme] for run in runs]
    stretch = pooled(runs, scheme)
    worst = np.array([np.nanmax(one.stretch) for one in found])
    ratios = np.concatenate([one.mean_ratio[~np.isnan(one.mean_ratio)] for one in found])
    stamps = [one.stamp_bytes for one in found if one.stamp_bytes is not None]
    return {
        "p50": _rounded(np.percentile(stretch, 50)),
        "p90": _rounded(np.percentile(stretch, 90)),
        "max": _rounded(stretch.max()),
        "worst_of_run": {"mean": _rounded(worst.mean()), "p90": _rounded(np.percentile(worst, 90))},
        "mean_ratio": {"p50": _rounded(np.percentile(ratios, 50)), "p90": _rounded(np.percentile(ratios, 90))},
        "mean_ms": _rounded(np.mean([one.mean_ms for one in found])),
        "p95_ms": _rounded(np.mean([one.p95_ms for one in found])),
        "nodes": _spread([float(one.nodes) for one in found]),
        "hops": _rounded(np.mean([one.hops for one in found])),
        "stamp_bytes": _rounded(np.mean(stamps)) if stamps else None,
    }


def against_bound(runs: Sequence[Run]) -> dict[str, float]:
    """Return how far ours is from the lower bound: medians and worst destinations, run by run and over all runs."""
    medians, worsts = [], []
    for run in runs:
        ours, bound = run.schemes["ours"].stretch, run.schemes["lower_bound"].stretch
        medians.append(float(np.nanmedian(ours) / np.nanmedian(bound)))
        worsts.append(float(np.nanmax(ours) / np.nanmax(bound)))
    ours, bound = pooled(runs, "ours"), pooled(runs, "lower_bound")
    return {
        "median": _rounded(np.median(ours) / np.median(bound)),
        "worst": _rounded(ours.max() / bound.max()),
        "median_of_run_max": _rounded(max(medians)),
        "worst_of_run_max": _rounded(max(worsts)),
    }


def _loads(runs: Sequence[Run]) -> dict[str, Any]:
    """The busiest node in parts of the busiest receiver: its ordered and handled load, and the unavoidable one."""
    schemes = {
        scheme: {
            "ordered": _spread([run.schemes[scheme].ordered for run in runs]),
            "handled": _spread([run.schemes[scheme].handled for run in runs]),
        }
        for scheme in SCHEMES
        if scheme != "lower_bound"
    }
    cliques = np.array([run.clique for run in runs])
    return {
        **schemes,
        "handled_by_some_node_of_every_network": _spread(cliques.tolist()),
        "runs_where_handling_no_more_than_the_receiver_is_impossible": int((cliques > 1 + 1e-9).sum()),
        "place_seconds": _spread([run.seconds for run in runs]),
    }


def pooled(runs: Sequence[Run], scheme: str) -> FloatArray:
    """Return the stretches of all destinations of all runs that there are."""
    stretch = np.concatenate([run.schemes[scheme].stretch for run in runs])
    known: FloatArray = stretch[~np.isnan(stretch)]
    return known


def of_figures(groups: Curve, occupancy: Curve) -> dict[str, Any]:
    """Return the paper's Figures 2 to 4: what was found, and what the paper says; 2 is in `document`."""
    found = {
        name: {
            "at": list(curve.at),
            "nodes": [round(each, DIGITS) for each in curve.mean.tolist()],
            "overlaps": [round(each, DIGITS) for each in curve.overlaps.mean(axis=0).tolist()],
        }
        for name, curve in (("3", groups), ("4", occupancy))
    }
    paper = {
        "2": {"worst": {str(count): worst for count, worst in CLAIMED_WORST.items()}},
        "3": {"slower_growth_beyond": LEVELLING},
        "4": {"most_nodes_at": PEAK, "one_node_above": ALONE},
    }
    return {"found": found | {"4": found["4"] | {"most_nodes_at": occupancy.peak}}, "paper": paper}


def tables(runs: Sequence[Run], curves: Mapping[str, Curve]) -> dict[str, str]:
    """Return CSV texts by name: the stretch of each destination, the results of each run, and the curves."""
    stretch = [
        (run.seed, run.groups, scheme, destination, _rounded(value), _rounded(ratio))
        for run in runs
        for scheme in SCHEMES
        for destination, (value, ratio) in enumerate(
            zip(run.schemes[scheme].stretch, run.schemes[scheme].mean_ratio, strict=True)
        )
    ]
    loads = [
        (run.seed, run.groups, name, one.nodes, one.hops, one.ordered, one.handled, one.stamp_bytes, run.clique)
        for run in runs
        for name, one in run.schemes.items()
    ]
    found = {
        "stretch": _csv(("seed", "groups", "scheme", "destination", "stretch", "mean_of_ratios"), stretch),
        "runs": _csv(
            ("seed", "groups", "scheme", "nodes", "hops", "ordered", "handled", "stamp_bytes", "clique"), loads
        ),
    }
    for name, curve in curves.items():
        points = [
            (at, run, int(curve.nodes[run, place]), int(curve.overlaps[run, place]))
            for place, at in enumerate(curve.at)
            for run in range(len(curve.nodes))
        ]
        found[name] = _csv((name, "run", "nodes", "overlaps"), points)
    return found


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _spread(values: Sequence[float | None]) -> dict[str, float]:
    known = np.array([value for value in values if value is not None])
    return {
        "mean": _rounded(known.mean()),
        "p10": _rounded(np.percentile(known, 10)),
        "p90": _rounded(np.percentile(known, 90)),
        "max": _rounded(known.max()),
    }


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), DIGITS)
