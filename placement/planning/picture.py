"""A plan drawn so that a person understands it; matplotlib comes with the extra ``plots``.

A plan of few regions is drawn whole (`placement.planning.lines`), a larger one as flows between its nodes
(`placement.planning.flows`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from placement.planning.figures import PlanFigures
from sequencing.errors import UsageError, unwritable
from sequencing.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 144

WHOLE_REGIONS_MAX = 48
WHOLE_ATOMS_MAX = 260
WHOLE_NODES_MAX = 24
"""Beyond either, lines and marks are too close to tell apart on a screen."""


def require_drawable(file: Path) -> None:
    """Raise `UsageError` unless matplotlib is installed and ``file`` is named like a picture that it can write."""
    if file.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{file}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    require("plots", f"a picture, {file},")


def draw_plan(figures: PlanFigures, file: Path) -> None:
    """Draw a plan into a file; PNG, SVG or PDF by its name. Raises `UsageError`, also where it cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from placement.planning.flows import draw_flows
    from placement.planning.lines import draw_lines

    require_drawable(file)
    plan = figures.plan
    whole = (
        0 < len(plan.paths) <= WHOLE_REGIONS_MAX
        and len(plan.atoms) <= WHOLE_ATOMS_MAX
        and len(plan.nodes) <= WHOLE_NODES_MAX
    )
    # Names must not be read as formulas, even if they contain such characters.
    with quiet_style(), rc_context({"text.parse_math": False}):
        figure = Figure(facecolor="white")
        (draw_lines if whole else draw_flows)(figures, figure)
        save(figure, file)


@contextmanager
def quiet_style() -> Iterator[None]:
    """Text that stays text in SVG, no clutter, and the same file for the same plan."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gamecast", "font.size": 9, "font.family": "DejaVu Sans"}):
        yield


def draw_all(drawings: Mapping[str, Callable[[Figure], None]], directory: Path) -> list[Path]:
    """Draw PNG files, by their names without the suffix, into a directory; return them. Raises `UsageError`."""
    from matplotlib.figure import Figure

    files = [directory / f"{name}.png" for name in drawings]
    with quiet_style():
        for file, drawing in zip(files, drawings.values(), strict=True):
            figure = Figure(facecolor="white", layout="constrained")
            drawing(figure)
            save(figure, file)
    return files


def save(figure: Figure, file: Path) -> None:
    """Write a figure; raises `UsageError` if it cannot be written."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(file.suffix.lower())
    try:
        with warnings.catch_warnings():
            # A name in a script that the font lacks: text in SVG shows all the same, elsewhere as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(file, dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.25, metadata=undated)
    except OSError as error:
        raise unwritable(f"{file}: cannot be written", error) from error
