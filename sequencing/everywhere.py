"""The paths of a network of one node, which lists no region: whatever region is named is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache


class Everywhere(Mapping[str, tuple[str, ...]]):
    """Any region → the one node. It has each key, and yields none."""

    def __init__(self, node: str) -> None:
        """Use `everywhere`."""
        self.node = node
        self._path = (node,)

    def __getitem__(self, region: str) -> tuple[str, ...]:
        return self._path

    def __contains__(self, region: object) -> bool:
        return isinstance(region, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@lru_cache(maxsize=64)
def everywhere(node: str) -> Everywhere:
    """Return the paths of a network of one node: the very same object each time."""
    return Everywhere(node)
