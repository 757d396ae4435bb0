"""The outcome of a run, as figures and as a story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from laboratory.chaos.faults import CANNOT, Struck
from laboratory.chaos.judging import Judgement
from laboratory.chaos.network import NODES
from laboratory.chaos.notes import Notes
from laboratory.chaos.recovery import Recovery
from laboratory.chaos.schedule import Kind

VIOLATIONS_SHOWN = 5
VIOLATION_LETTERS_MAX = 600


@dataclass(frozen=True)
class Outcome:
    """``struck``: the faults as they were carried out, of ``scheduled`` ones; ``settled_s``: how long the network took
    to come to rest after the last traffic; ``ended_by_themselves``: (process, exit status, when in ns) of processes
    that no fault had ended; ``hanging``: servers that did not end when asked to; ``directory``: where all logs are, if
    it is ``lasting`` or a promise was broken; ``left_out``: faults that this machine cannot produce."""

    seed: int
    seconds: float
    servers: int
    scheduled: int
    struck: tuple[Struck, ...]
    notes: Notes
    judgement: Judgement
    recovery: Recovery
    settled_s: float
    ended_by_themselves: tuple[tuple[str, int, int], ...]
    hanging: tuple[str, ...]
    epochs: int
    directory: Path
    lasting: bool
    lossy: bool
    replicas: int = 0
    left_out: tuple[Kind, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether every promise was kept."""
        return self.judgement.fine

    @property
    def faults(self) -> Counter[str]:
        """Kind → how many were carried out."""
        return Counter(str(fault.kind) for fault in self.struck)

    @property
    def refused(self) -> Counter[str]:
        """Error → how many events failed with it."""
        return sum((life.failures for life in self.notes.lives), Counter[str]())

    @property
    def reopened(self) -> Counter[str]:
        """``call: error`` → how many connections were given up, or could not be opened, for it."""
        troubles = [*self.notes.trouble, *(trouble for life in self.notes.lives for trouble in life.trouble[:1])]
        return Counter(f"{trouble['call']}: {trouble['error']}" for trouble in troubles)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        judgement, recovery = self.judgement, self.recovery
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "servers": self.servers,
            "nodes": len(NODES),
            "lossy": self.lossy,
            "replicas": self.replicas,
            "faults": dict(sorted(self.faults.items())),
            "faults_total": len(self.struck),
            "faults_scheduled": self.scheduled,
            "faults_left_out": {str(kind): CANNOT[kind] for kind in self.left_out},
            "leaderships_taken_over": sum(fault.took_over for fault in self.struck),
            "published": judgement.published,
            "receipts": judgement.receipts,
            "delivered": judgement.delivered,
            "lost": judgement.lost,
            "duplicated": judgement.duplicated,
            "inversions": judgement.inversions,
            "cycles": judgement.cycles,
            "publisher_order_violations": judgement.publisher_order_violations,
            "gaps": judgement.gaps,
            "uncertain": judgement.uncertain,
            "uncertain_published": judgement.uncertain_published,
            "keyed": judgement.keyed,
            "conflicts": judgement.conflicts,
            "sometimes": dict(judgement.sometimes),
            "violations": [_short(violation) for violation in judgement.violations],
            "longest_stall_s": round(recovery.longest_stall.seconds, 3),
            "longest_silence_s": round(recovery.longest_silence.seconds, 3),
            "recovery_s": recovery.by_kind(),
            "waits_s": recovery.waits_by_kind(),
            "unrecovered": recovery.unrecovered,
            "settled_s": round(self.settled_s, 3),
            "epochs": self.epochs,
            "joins": sum(len(life.session.joined) for life in self.notes.lives),
            "sessions": len(self.notes.lives),
            "failed_publishes": dict(sorted(self.refused.items())),
            "reopened": dict(sorted(self.reopened.items())),
            "ended_by_themselves": [{"process": name, "status": s} for name, s, _ in self.ended_by_themselves],
            "hanging": list(self.hanging),
            "logs": str(self.directory) if self.lasting or not self.fine else None,
        }

    def tell(self, console: Console) -> None:
        """Print the story."""
        console.print(Group(*self._story()))

    def _story(self) -> Iterator[Any]:
        judgement, recovery = self.judgement, self.recovery
        joins = sum(len(life.session.joined) for life in self.notes.lives)
        yield Text(
            f"Seed {self.seed}: {self.servers} game servers published {judgement.published:,} events through "
            f"{len(NODES)} sequencing nodes for {self.seconds:g} s, joined regions {joins:,} times "
            f"({self.epochs:,} epochs), and were handed {judgement.delivered:,} events, while "
            f"{len(self.struck)} faults befell them."
        )
        yield self._faults_table()
        table = Table("promise", "broken")
        table.columns[1].justify = "right"
        for row, broken in (
            ("lost", judgement.lost),
            ("delivered twice", judgement.duplicated),
            ("pairs of events in opposite orders", judgement.inversions),
            ("cycles in the union of all orders", judgement.cycles),
            ("out of their publisher's order", judgement.publisher_order_violations),
        ):
            table.add_row(row, _counted(broken))
        if self.lossy:
            table.add_row("gaps, each for events that a node has lost", f"{judgement.gaps:,}")
        else:
            table.add_row("gaps, where nothing can be missing", _counted(judgement.gaps))
        yield table
        yield Text(
            f"Without a fault under way, no server waited longer than {recovery.longest_stall.seconds:.2f} s for an "
            f"event; while others were befallen, {recovery.longest_silence.seconds:.2f} s. After the last event it "
            f"took {self.settled_s:.1f} s until all was at rest."
        )
        yield Text(
            f"{judgement.receipts:,} events got receipts; the fate of {judgement.uncertain:,} was unknown to their "
            f"publisher, and {judgement.uncertain_published:,} of those were published. {judgement.keyed:,} named a "
            f"key; {judgement.conflicts:,} were refused by their condition. Failed publishes: "
            f"{_counts(self.refused)}. Connections given up: {_counts(self.reopened)}."
        )
        happened = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in judgement.sometimes.items())
        yield Text(f"Of what happens only sometimes: {happened}.")
        for kind in self.left_out:
            yield Text(f"Left out: {kind.replace('_', ' ')}; {CANNOT[kind]}.")
        if self.ended_by_themselves:
            yield Text(
                "Processes that ended by themselves and were started again: "
                + _counts(Counter(f"{name} ({status})" for name, status, _ in self.ended_by_themselves))
                + "."
            )
        yield self._conclusion()

    def _faults_table(self) -> Table:
        table = Table("fault", "times", "recovered after (median)", "(longest)", "an event took (median)", "(longest)")
        for column in table.columns[1:]:
            column.justify = "right"
        by_kind, waits = self.recovery.by_kind(), self.recovery.waits_by_kind()
        for kind, times in sorted(self.faults.items()):
            figures = *_figures(by_kind.get(kind)), *_figures(waits.get(kind))
            table.add_row(kind.replace("_", " "), str(times), *figures)
        return table

    def _conclusion(self) -> Panel:
        if self.fine:
            return Panel(Text("Every promise was kept."))
        shown = [_short(violation) for violation in self.judgement.violations[:VIOLATIONS_SHOWN]]
        said = "\n".join(["gamecast broke a promise:", *shown, f"All logs are in {self.directory}."])
        return Panel(Text(said), style="bold red")


def _figures(found: Mapping[str, float] | None) -> tuple[str, str]:
    return (f"{found['median']:.2f} s", f"{found['max']:.2f} s") if found else ("–", "–")


def _counted(broken: int) -> Text:
    return Text(f"{broken:,}", style="red" if broken else "green")


def _short(text: str) -> str:
    return text if len(text) <= VIOLATION_LETTERS_MAX else text[:VIOLATION_LETTERS_MAX] + " …"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"
