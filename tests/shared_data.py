"""Where the recorded match is, beside the checkout, and what skips the tests that need it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
BLACK_GOLD = SHARED_DATA / "game_pr_black_gold"

needs_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason="the recorded match is not here: there is no ../shared/data beside the checkout"
)
