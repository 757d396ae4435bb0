"""The claims about the protocols, tested on measured rows: each claim with its verdict and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Row = Mapping[str, Any]
SAME = 1.02
"""Values that differ by less count as equal."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``holds``: whether in all cases that were measured; ``figures``: a line a case; ``against``: where it fails."""

    claim: str
    source: str
    holds: bool
    figures: tuple[str, ...]
    against: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return asdict(self)


def judge_claims(rows: Sequence[Row]) -> list[Claim]:
    """Judge each claim that there are rows for."""
    found = [test(Figures(rows)) for test in CLAIMS]
    return [claim for claim in found if claim is not None]


def lessons(rows: Sequence[Row]) -> list[str]:
    """Return what the figures say of ours, in sentences: where it is the same as something simpler, wins, and loses."""
    figures = Figures(rows)
    return [
        said
        for said in (
            _one_group(figures),
            *(_several(figures, rival, *words) for rival in ("central", "propagation-tree") for words in MEASURES),
            _bytes(figures),
        )
        if said
    ]


MEASURES = (("stretch", "the stretch"), ("busiest", "the load of the busiest process"))


def _one_group(figures: Figures) -> str:
    pairs = list(figures.pairs("atoms", "central", one_group=True))
    same = all(
        ours[metric] == theirs[metric] for _, ours, theirs in pairs for metric in ("packets", "mean_ms", "busiest")
    )
    return "In one group atoms are a central sequencer, to the packet: they buy nothing over it." * (
        bool(pairs) and same
    )


def _several(figures: Figures, rival: str, metric: str, words: str) -> str:
    """The range of ours over the rival's, with the best and the worst case."""
    pairs = [(ours[metric] / theirs[metric], w) for w, ours, theirs in figures.pairs("atoms", rival, one_group=False)]
    if not pairs:
        return ""
    (least, best), (most, worst) = min(pairs), max(pairs)
    verdict = "Ours wins" if most <= SAME else "Ours loses" if least >= 1 / SAME else "It depends"
    return (
        f"{verdict}: in several groups {words} of atoms is {least:.2f} ({best}) to {most:.2f} times ({worst}) that of "
        f"{rival}."
    )


def _bytes(figures: Figures) -> str:
    """How stamps grow with groups, against clocks and against a single number."""
    found = [
        (ours["groups"], ours["metadata_bytes"], clocks["metadata_bytes"], rows["central"]["metadata_bytes"])
        for _, ours, clocks in figures.pairs("atoms", "kshemkalyani-singhal", one_group=False)
        for rows in figures.of.values()
        if rows.get("atoms") is ours and "central" in rows
    ]
    if not found:
        return ""
    (few, at_few, clocks, one), (many, at_many, more, single) = min(found), max(found)
    return (
        f"Stamps grow with overlaps: {at_few:.0f} bytes with {few} groups and {at_many:.0f} with {many}, where the "
        f"logs of kshemkalyani-singhal have {clocks:.0f} and {more:.0f}, and the one number of central {one:.0f} and "
        f"{single:.0f}."
    )


class Figures:
    """Rows by case and protocol."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.of: dict[tuple[int, int, float], dict[str, Row]] = {}
        for row in rows:
            if "packets" in row:
                case = (row["processes"], row["groups"], row["rate"])
                self.of.setdefault(case, {})[row["protocol"]] = row

    def pairs(self, one: str, other: str, *, one_group: bool) -> Iterator[tuple[str, Row, Row]]:
        """Yield the cases in which two protocols were measured, one group or several."""
        for (processes, groups, rate), rows in sorted(self.of.items()):
            if one in rows and other in rows and (groups == 1) is one_group:
                where = f"{processes} processes, {rate:g}/s each"
                yield (where if one_group else f"{groups} groups, {where}"), rows[one], rows[other]


def _swap_below_counting(figures: Figures) -> Claim | None:
    lines: list[str] = []
    against: list[str] = []
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    """Of each swap and size: rate, and how many times as long counting takes."""
    for swap in ("arrow", "combining"):
        for where, mine, theirs in figures.pairs(swap, f"{swap}-counting", one_group=True):
            line = f"{swap}, {where}: {_ms(mine['mean_ms'])} against {_ms(theirs['mean_ms'])}"
            (lines if mine["mean_ms"] <= theirs["mean_ms"] * SAME else against).append(line)
            times.setdefault((swap, mine["processes"]), []).append((mine["rate"], theirs["mean_ms"] / mine["mean_ms"]))
    for (swap, processes), found in times.items():
        (few, at_few), (many, at_many) = min(found), max(found)
        if few < many:
            line = (
                f"{swap}, {processes} processes: {at_few:.1f} times as quick at {few:g}/s, {at_many:.1f} at {many:g}/s"
            )
            (lines if at_many * SAME >= at_few else against).append(line)
    return _claim(
        "A message is delivered sooner by swapping than by counting, and more so the more is published at once",
        "Herlihy 2000, §4, §5",
        lines,
        against,
    )


def _root_against_locality(figures: Figures) -> Claim | None:
    lines: list[str] = []
    against: list[str] = []
    for where, root, arrows in figures.pairs("combining", "arrow", one_group=True):
        line = (
            f"{where}: the busiest of the combining tree ({root['busiest_process']}) has {root['busiest']:.1f} packets "
            f"a multicast, of the arrows {arrows['busiest']:.1f}; time to deliver {_ms(root['mean_ms'])} and "
            f"{_ms(arrows['mean_ms'])}"
        )
        (lines if root["busiest"] > arrows["busiest"] * SAME else against).append(line)
    return _claim(
        "A combining tree loads its root, arrows load nobody in particular", "Herlihy 2000, §6.1", lines, against
    )


def _atoms_below_vectors(figures: Figures) -> Claim | None:
    lines: list[str] = []
    against: list[str] = []
    rivals = (("vector-clocks", True), ("kshemkalyani-singhal", False), ("raynal-schiper-toueg", False))
    for rival, one_group in rivals:
        for where, ours, theirs in figures.pairs("atoms", rival, one_group=one_group):
            line = f"{where}: atoms {ours['metadata_bytes']:.0f}, {rival} {theirs['metadata_bytes']:.0f} bytes"
            (lines if ours["metadata_bytes"] * SAME < theirs["metadata_bytes"] else against).append(line)
    return _claim("Atoms weigh less on a message than vector clocks and matrices", "Lumezanu 2006, §4", lines, against)


def _against(rival: str, metric: str, words: str) -> Callable[[Figures], Claim | None]:
    def test(figures: Figures) -> Claim | None:
        lines: list[str] = []
        against: list[str] = []
        for where, ours, theirs in figures.pairs("atoms", rival, one_group=False):
            line = f"{where}: atoms {ours[metric]:.2f}, {rival} {theirs[metric]:.2f}"
            (lines if ours[metric] <= theirs[metric] * SAME else against).append(line)
        return _claim(f"In several groups atoms {words} {rival}", "ours", lines, against)

    return test


CLAIMS: tuple[Callable[[Figures], Claim | None], ...] = (
    _swap_below_counting,
    _root_against_locality,
    _atoms_below_vectors,
    _against("central", "stretch", "have no more stretch than"),
    _against("central", "busiest", "load their busiest process no more than"),
    _against("propagation-tree", "stretch", "have no more stretch than"),
    _against("propagation-tree", "busiest", "load their busiest process no more than"),
)


def _claim(claim: str, source: str, lines: list[str], against: list[str]) -> Claim | None:
    if not lines and not against:
        return None
    return Claim(claim, source, not against, tuple(lines), tuple(against))


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"
