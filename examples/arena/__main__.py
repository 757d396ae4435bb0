"""``python examples/arena``: the arena in your browser."""

from __future__ import annotations

import sys
from pathlib import Path

# Run by its folder's name, which makes it no package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.arena.app import main

if __name__ == "__main__":
    main()
