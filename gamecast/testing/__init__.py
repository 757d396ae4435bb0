"""For users' own tests: networks without a server, faults in them, and the checkers that judge deliveries.

>>> async with gamecast.connect(memory_url(nodes=3), name="s1") as s1:
...     ...
>>> assert judge([DeliverySequence("s1", events, regions, senders), ...]).fine

`Fold` checks states against the events that made them. `faults` injects gaps, losses, disconnects and expired sessions,
so that tests reach the handlers for them.
"""

from __future__ import annotations

import secrets

from adapters.memory import parse_node_count
from gamecast.testing.folding import Fold
from gamecast.testing.injection import Faults, faults
from sequencing.extras import needed_by

with needed_by("gamecast.testing"):
    from sequencing.checkers import DeliverySequence, Offence, PairOrder, Published, Verdict, compare_pairs, judge

__all__ = [
    "DeliverySequence",
    "Faults",
    "Fold",
    "Offence",
    "PairOrder",
    "Published",
    "Verdict",
    "compare_pairs",
    "faults",
    "judge",
    "memory_url",
]


def memory_url(*, nodes: int = 1) -> str:
    """Return the URL of a network of this process that no other test has."""
    parse_node_count(f"nodes={nodes}")
    return f"memory://{secrets.token_hex(8)}?nodes={nodes}"
