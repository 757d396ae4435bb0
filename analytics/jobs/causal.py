"""The causal audit: did a subscriber deliver an answer before its cause?

X precedes Y if the publisher of Y had delivered X before, or had published X itself. Then every subscriber that
delivers both must deliver X first. The audit finds every such pair in which one publisher links X and Y. Longer chains
show wherever each link's subscribers are concerned. Delivering and publishing are compared by the publisher's one
clock.

An X that a subscriber delivered after Y was first delivered before Y was published. So the guessed slice of X is no
later than that of Y, and its settled slice no earlier. With X in all slices from the one to the other, the pair is in
one slice, and slices are searched in parallel. The work is deliveries × publishers of a subscriber.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.numbering import Numbering
from analytics.jobs.slices import LIVE, Slices
from analytics.jobs.spark import quiet_imports
from sequencing.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
VIOLATIONS = "violations long, viewer int, publisher int, cause long, effect long, index long"


@dataclass(frozen=True, slots=True)
class CausalViolation:
    """``subscriber`` delivered ``effect`` before ``cause``, which ``publisher`` had delivered or published before."""

    subscriber: str
    publisher: str
    cause: str
    effect: str

    def describe(self) -> str:
        """Return one sentence."""
        return (
            f"{self.subscriber} delivered {self.effect} before {self.cause}, which {self.publisher} had before it "
            f"published {self.effect}"
        )

    def as_dict(self) -> dict[str, object]:
        """Return the violation as JSON values, in the shape of other offences."""
        return {
            "kind": "causal",
            "events": [self.cause, self.effect],
            "subscribers": [self.subscriber],
            "sender": self.publisher,
            "says": self.describe(),
        }


@dataclass(frozen=True, slots=True)
class Causality:
    """``violations``: deliveries that came before an event that they should have followed."""

    violations: int
    first: CausalViolation | None

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"violations": self.violations, "first": self.first.as_dict() if self.first is not None else None}


def audit_causality(slices: Slices, numbering: Numbering) -> Causality:
    """Search for deliveries that came before their causes; ``numbering`` must have been made with times.

    A delivery without one of its times is neither cause nor effect.
    """
    if "delivered_at_ns" not in numbering.deliveries.columns:
        raise UsageError("the causal audit needs times: number the deliveries with times=True")
    number = {name: place for place, name in enumerate(numbering.publishers)}
    owner = np.array([number.get(viewer.subscriber, -1) for viewer in numbering.viewers])
    columns = ("viewer", "index", "event", "publisher", "sent_at_ns", "delivered_at_ns")
    rows = slices.deliveries.where(f"{LIVE} AND sent_at_ns IS NOT NULL AND delivered_at_ns IS NOT NULL")
    placed = rows.withColumn("slice", fn.explode(fn.sequence("guess", "slice"))).select("slice", *columns)
    with quiet_imports():
        violations = placed.groupBy("slice").applyInArrow(_search(owner), VIOLATIONS).persist()
    try:
        return _told(violations, numbering)
    finally:
        violations.unpersist()


def _told(violations: DataFrame, numbering: Numbering) -> Causality:
    one = fn.min(fn.struct("index", "viewer", "publisher", "cause", "effect")).alias("one")
    # An effect in two slices is found in both.
    each = violations.dropDuplicates(["viewer", "effect"])
    total = each.agg(fn.count("*").alias("n"), one).first()
    if total is None or not total["n"]:
        return Causality(0, None)
    row = total["one"]
    names = numbering.name_events([row["cause"], row["effect"]])
    viewer, publisher = numbering.viewers[row["viewer"]].name, numbering.publishers[row["publisher"]]
    return Causality(int(total["n"]), CausalViolation(viewer, publisher, names[row["cause"]], names[row["effect"]]))


def _search(owner: IntArray) -> Callable[[pa.Table], pa.Table]:
    """Return the function that searches a slice; ``owner`` is each viewer's number as a publisher, -1 for none."""

    def search(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        names = ("viewer", "index", "event", "publisher", "sent_at_ns", "delivered_at_ns")
        viewer, index, event, publisher, sent, delivered = (table[name].to_numpy() for name in names)
        order = np.lexsort((index, viewer))
        viewer, index, event, publisher = viewer[order], index[order], event[order], publisher[order]
        sent, delivered = sent[order], delivered[order]
        ids, first, place = np.unique(event, return_index=True, return_inverse=True)
        bounds = np.append(np.flatnonzero(np.diff(viewer, prepend=-1)), len(viewer))
        rows: list[tuple[int, int, int, int, int, int]] = []
        for who in np.unique(publisher).tolist():
            had = _had(ids, owner[viewer] == who, place, delivered, publisher[first] == who, sent[first])
            for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                mine = slice(start, end)
                answers = publisher[mine] == who
                if not answers.any() or owner[viewer[start]] == who:
                    continue
                for at, cause in _late_causes(had[place[mine]], answers, sent[mine]):
                    effect = start + at
                    rows.append(
                        (1, int(viewer[effect]), who, int(event[start + cause]), int(event[effect]), int(index[effect]))
                    )
        kinds = (("violations", pa.int64()), ("viewer", pa.int32()), ("publisher", pa.int32()))
        schema = pa.schema([*kinds, *((name, pa.int64()) for name in ("cause", "effect", "index"))])
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)

    return search


def _had(
    ids: IntArray,
    delivered_by: npt.NDArray[np.bool_],
    place: IntArray,
    delivered: IntArray,
    own: npt.NDArray[np.bool_],
    sent: IntArray,
) -> IntArray:
    """Return since when a publisher knew each event: since it delivered or published it, whichever was first."""
    had = np.full(len(ids), NEVER, np.int64)
    np.minimum.at(had, place[delivered_by], delivered[delivered_by])
    had[own] = np.minimum(had[own], sent[own])
    return had


def _late_causes(had: IntArray, answers: npt.NDArray[np.bool_], sent: IntArray) -> Iterator[tuple[int, int]]:
    """Yield places of an answer and of a later delivery that its publisher had before publishing it."""
    behind = np.append(np.minimum.accumulate(had[::-1])[::-1][1:], NEVER)
    for at in np.flatnonzero(answers & (behind < sent)).tolist():
        yield at, at + 1 + int(np.argmin(had[at + 1 :]))
