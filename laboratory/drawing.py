"""What the laboratory's pictures have in common; matplotlib is the extra ``plots``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sequencing.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def require_matplotlib() -> None:
    """Raise `ExtraMissing` unless matplotlib is installed."""
    require("plots", "--plots")


def open_frame(axes: Axes) -> None:
    """Leave out the frame's upper and right side."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def plain(axes: Axes) -> None:
    """Have an open frame, and a faint grid."""
    open_frame(axes)
    axes.grid(alpha=0.25, linewidth=0.6)
