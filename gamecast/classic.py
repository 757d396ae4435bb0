"""The classic ordering protocols live, instead of the sequencing network: `connect` runs one of them for a process.

>>> groups = {"forest": ["a", "b"], "river": ["a", "b", "c"]}
>>> async with gamecast.classic.connect(url, name="a", protocol="isis-overlapping", groups=groups) as client:
...     await client.publish("forest", {"type": "spell"})

The wheel has this file as the ``__init__`` of the folder of the protocols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laboratory.protocols.client import ProtocolClient

__all__ = ["ProtocolClient", "connect"]


def connect(
    url: str | None = None,
    *,
    name: str,
    protocol: str,
    processes: Sequence[str] = (),
    groups: Mapping[str, Iterable[str]] | None = None,
    tree: Sequence[tuple[str, str]] = (),
    open_groups: bool = False,
    network: str = "default",
) -> ProtocolClient:
    """Return a process of a classic protocol, over mailboxes on one server; it opens with ``async with``.

    ``protocol``: its name in the catalogue, see docs/protocols.md. All processes say the same ``groups`` (region →
    members) or, for one group of all, ``processes``; ``tree``, ``open_groups`` and ``network``: see
    `laboratory.protocols.connection.connect`.

    Raises `UsageError` and its kinds at once when an argument cannot be right. A protocol is refused when something it
    assumes is missing; the error names the protocols that would fit. Does not block.
    """
    from laboratory.protocols.client import ProtocolClient  # which imports the folder that this file is in the wheel

    return ProtocolClient(
        url,
        name=name,
        protocol=protocol,
        processes=processes,
        groups=groups,
        tree=tree,
        open_groups=open_groups,
        network=network,
    )


def __getattr__(name: str) -> Any:
    if name == "ProtocolClient":
        from laboratory.protocols.client import ProtocolClient  # as above

        return ProtocolClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
