"""What axe-core says of a page: whether people with screen readers and keyboards can use it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.patience import scaled

AXE = "axe-core@4.10.3"


def fetch_axe(place: Path) -> str | None:
    """Return the source of axe-core, None where npm cannot fetch it."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    try:
        subprocess.run([npm, "pack", AXE], cwd=place, capture_output=True, check=True, timeout=scaled(30))
    except (subprocess.SubprocessError, OSError):
        return None
    [archive] = place.glob("*.tgz")
    shutil.unpack_archive(archive, place, filter="data")
    return (place / "package" / "axe.min.js").read_text(encoding="utf-8")


async def judge(page: Any, axe: str | None) -> list[str]:
    """Return what is wrong for people who cannot see or point, by axe-core."""
    if axe is None:
        return []
    await page.evaluate(axe)
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 20
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]
