"""The keys of the control Redis."""

from __future__ import annotations

from collections.abc import Mapping

from adapters.redis.past import PAST


class ControlKeys:
    """The Redis keys through which managers and connections communicate."""

    state = "gamecast:{control}:state"
    plan = "gamecast:{control}:plan"
    regions = "gamecast:{control}:regions"
    atoms = "gamecast:{control}:atoms"
    heard = "gamecast:{control}:heard"
    ordered = "gamecast:{control}:ordered"
    published = "gamecast:{control}:published"
    lease = "gamecast:{control}:leader"
    news = "gamecast:{control}:news"
    asked = "gamecast:{control}:asked"
    changes = "gamecast:{control}:changes"
    incarnations = "gamecast:{control}:incarnations"
    connections = "gamecast:{control}:connections"
    alive = "gamecast:{control}:alive"
    looked = "gamecast:{control}:looked"
    nodes = "gamecast:{control}:nodes"
    lossy = "gamecast:{control}:lossy"
    retired = "gamecast:{control}:retired"
    expected = "gamecast:{control}:expected"
    probes = "gamecast:{control}:probes"
    led = "gamecast:{control}:led"
    gone = "gamecast:{control}:gone"
    past = PAST
    doubted = "gamecast:{control}:doubted"
    seen_runs = "gamecast:{control}:runs"
    proposal = "gamecast:{control}:proposal"
    sole = "gamecast:{control}:sole"
    said = "gamecast:{control}:said"
    superseded = "gamecast:{control}:superseded"
    boxes = "gamecast:{control}:boxes"
    doing = "gamecast:{control}:doing"
    present = "gamecast:{control}:present"
    woken = "gamecast:{control}:woken"
    trouble = "gamecast:{control}:trouble"
    of_connections = (
        *(published, asked, changes, incarnations, connections, alive, expected, gone, sole, said),
        *(superseded, boxes, doing),
    )
    """Of control.lua. It is given `connections` and names the others from that, as leading.lua does from `state`."""
    types: Mapping[str, str] = {
        **dict.fromkeys((state, regions, atoms, heard, incarnations, connections, nodes, probes), "hash"),
        **dict.fromkeys((led, doubted, seen_runs, proposal, said, boxes, doing), "hash"),
        **dict.fromkeys((plan, lease, looked, sole, trouble), "string"),
        **dict.fromkeys((news, asked, changes, past, superseded, woken), "stream"),
        **dict.fromkeys((published, ordered, lossy, retired, expected), "set"),
        **dict.fromkeys((alive, gone, present), "zset"),
    }
    """Key → its type in Redis; with another type, it cannot be used."""
    of_plans = frozenset((state, plan, regions, atoms, heard, ordered, nodes, lossy, retired))
    """What only leaders write, and cannot go on without: they remove none of it."""

    @staticmethod
    def rows(name: str) -> str:
        """Return the hash of what a connection wants: region → since when."""
        return f"gamecast:{{control}}:rows:{name}"

    @staticmethod
    def carried(node: str) -> str:
        """Return the string that is there while somebody carries the links that leave a node."""
        return f"gamecast:{{control}}:carried:{node}"

    @staticmethod
    def box(of: str) -> str:
        """Return the stream that wakes a process when there are news for one of its connections."""
        return f"gamecast:{{control}}:box:{of}"

    @staticmethod
    def counted(name: str) -> str:
        """Return the set of the regions that the plan counts for a connection."""
        return f"gamecast:{{control}}:counted:{name}"
