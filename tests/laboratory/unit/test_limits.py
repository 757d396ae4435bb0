"""A test that hangs ends, also while it clears up, and says where its tasks are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import scaled

ROOT = Path(__file__).resolve().parents[3]
HANGING = """
import asyncio

async def stubborn():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def test_that_fails_and_cannot_be_cleared_up():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0.1)
    raise ValueError("as it must")

async def test_that_hangs_and_cannot_be_cleared_up():
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(1000)

def test_that_comes_after():
    pass
"""


def test_what_hangs_ends_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING, encoding="utf-8")
    options = ["--timeout", "1", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        cwd=ROOT,
        check=False,
    )
    assert "2 failed, 1 passed, 2 errors" in done.stdout, done.stdout
    assert "as it must" in done.stdout
    assert "in stubborn" in done.stdout
