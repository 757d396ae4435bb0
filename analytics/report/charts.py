"""Charts as inline SVG: bars, and lines over an axis. Colours come from the page's stylesheet.

One chart serves every width, without a script: places along x are percentages, so that texts keep their size while the
plot stretches. Lines are in an inner drawing that is stretched, with strokes that are not.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from analytics.report.axes import Axis

Tone = Literal["cool", "warm", "hot"]
ROW_PX, BAR_PX = 34, 9
WIDE = 1000
"""The width of an inner drawing, in units of its own."""
NAME_MAX = 31
"""Columns of a name that fit beside its value on a phone; the middle of longer ones is left out."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: ``value`` is its length, ``text`` is beside its name, ``hover`` is the rest that is known of it."""

    name: str
    value: float
    text: str
    hover: str = ""
    tone: Tone = "cool"


def bar_chart(bars: Sequence[Bar], *, label: str, mark: tuple[float, str] | None = None) -> str:
    """Return bars from zero, first on top, each with its name and value above it.

    ``label``: what a screen reader says. ``mark``: a value that gets a tick on each bar, and its text on top.
    """
    longest = max(0.0, mark[0] if mark else 0.0, *(bar.value for bar in bars)) or 1.0
    top = 18 if mark else 0
    rows = "".join(_bar(bar, longest, top + number * ROW_PX) for number, bar in enumerate(bars))
    height = top + len(bars) * ROW_PX
    if mark:
        x = f"{100 * mark[0] / longest:.2f}%"
        ticks = [top + number * ROW_PX + 17 for number in range(len(bars))]
        rows += "".join(f'<line class="tick" x1="{x}" x2="{x}" y1="{y}" y2="{y + BAR_PX + 4}"/>' for y in [1, *ticks])
        side = 'dx="-6" text-anchor="end"' if mark[0] > longest / 2 else 'dx="6"'
        rows += f'<text class="soft" x="{x}" y="12" {side}>{html.escape(mark[1])}</text>'
    return drawing(rows, height, label, kind="bars")


def _bar(bar: Bar, longest: float, top: float) -> str:
    width = 100 * max(bar.value, 0.0) / longest
    hover = f"{isolated(bar.name)}: {bar.text}" + (f", {bar.hover}" if bar.hover else "")
    return (
        f'<g>{hover_text(hover)}<rect class="hit" y="{top}" width="100%" height="{ROW_PX}"/>'
        f'<text y="{top + 14}" class="name">{html.escape(shortened(bar.name))}</text>'
        f'<text x="100%" y="{top + 14}" text-anchor="end" class="value">{html.escape(bar.text)}</text>'
        f'<rect class="track" y="{top + 19}" width="100%" height="{BAR_PX}" rx="2"/>'
        f'<rect class="{bar.tone}" y="{top + 19}" width="{width:.2f}%" height="{BAR_PX}" rx="2"/></g>'
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of a plot with a vertical axis of its own; in pixels from the top of the drawing."""

    y: Axis
    top: float
    height: float

    def place(self, value: float) -> float:
        """Return the pixels from the top of the drawing."""
        return self.top + self.height * (1 - self.y.place(value))

    def grid(self) -> str:
        """Return the lines and labels of the vertical axis."""
        return "".join(
            f'<line class="grid" x2="100%" y1="{self.place(value):.1f}" y2="{self.place(value):.1f}"/>'
            f'<text class="soft" x="-8" y="{self.place(value) + 4:.1f}" text-anchor="end">{html.escape(text)}</text>'
            for value, text in self.y.ticks
        )


def x_axis(x: Axis, top: float, bottom: float) -> str:
    """Return the lines and labels of a horizontal axis."""
    return "".join(
        f'<line class="grid" x1="{percent(x, value)}" x2="{percent(x, value)}" y1="{top}" y2="{bottom}"/>'
        f'<text class="soft" x="{percent(x, value)}" y="{bottom + 18}" text-anchor="middle">{html.escape(text)}</text>'
        for value, text in x.ticks
    )


def line(pieces: Iterable[Sequence[tuple[float, float]]], x: Axis, panel: Panel, kind: str) -> str:
    """Return a line of separate pieces, each of points (x, y); a piece of one point is a dash."""
    paths = []
    for piece in pieces:
        points = [f"{WIDE * x.place(at):.1f} {panel.place(value):.1f}" for at, value in piece]
        paths.append("M" + "L".join(points) + ("m-2 0h4" if len(points) == 1 else ""))
    return f'<path class="line {kind}" d="{"".join(paths)}"/>'


def stretched(paths: str, height: float) -> str:
    """Return an inner drawing as wide as the plot; strokes keep their width."""
    return (
        f'<svg width="100%" height="{height}" viewBox="0 0 {WIDE} {height}" preserveAspectRatio="none" '
        f'overflow="visible">{paths}</svg>'
    )


def steps(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Return the corners of a line that goes right, then up, from zero."""
    height = 0.0
    for at, value in points:
        yield at, height
        yield at, value
        height = value


def hover_bands(texts: Sequence[tuple[float, str]], x: Axis, height: float) -> str:
    """Return bands from each place to the next that show a text under the pointer."""
    places = [100 * x.place(at) for at, _ in texts] + [100.0]
    return "".join(
        f'<rect class="hit" x="{here:.2f}%" width="{max(0.0, after - here):.2f}%" height="{height}">'
        f"{hover_text(text)}</rect>"
        for (_, text), here, after in zip(texts, places, places[1:], strict=False)
    )


def drawing(contents: str, height: float, label: str, *, kind: str) -> str:
    """Return the SVG that a screen reader takes for one picture."""
    said = html.escape(label)
    return f'<svg class="{kind}" role="img" aria-label="{said}" width="100%" height="{height:.0f}">{contents}</svg>'


def figure(chart: str, below: str = "", *, above: str = "") -> str:
    """Return a chart with its unit above it and a caption below."""
    title = f'<p class="unit">{above}</p>' if above else ""
    caption = f"<figcaption>{below}</figcaption>" if below else ""
    return f"<figure>{title}{chart}{caption}</figure>"


def legend(shown: Iterable[tuple[str, str]]) -> str:
    """Return what the shapes of a chart stand for; each is 28 by 12 pixels."""
    items = (f'<li><svg class="swatch" aria-hidden="true">{shape}</svg>{text}</li>' for shape, text in shown)
    return f'<ul class="legend">{"".join(items)}</ul>'


def dash(kind: str) -> str:
    """Return the piece of a line that its legend has."""
    return f'<path class="line {kind}" d="M1 6H27"/>'


def hover_text(text: str) -> str:
    """Return what the pointer shows."""
    return f"<title>{html.escape(text)}</title>"


def percent(x: Axis, value: float) -> str:
    """Return a place along x as SVG takes it."""
    return f"{100 * x.place(value):.2f}%"


def shortened(name: str) -> str:
    """Return a legible name whose middle is left out if it is long: names often differ at their ends."""
    name = legible(name)
    if sum(map(_columns, name)) <= NAME_MAX:
        return name
    return _beginning(name) + "…" + _beginning(name[::-1])[::-1]


def _beginning(name: str) -> str:
    """Return as many characters as have half of the columns."""
    ends = accumulate(map(_columns, name))
    return name[: sum(end < NAME_MAX // 2 for end in ends)]


def _columns(character: str) -> int:
    """Return how wide a character is: those of Chinese, Japanese and Korean take two columns."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def isolated(name: str) -> str:
    """Return a legible name that does not change the direction of the text around it."""
    return f"\u2068{legible(name)}\u2069"


def legible(text: str) -> str:
    """Return a text with signs in place of control characters, and without what reorders other text."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\r":
        return "↵"
    if character == "\t":
        return " "
    if unicodedata.category(character) in ("Cc", "Cs") or character in "\u202a\u202b\u202c\u202d\u202e\u2028\u2029":
        return "\ufffd"
    return character
