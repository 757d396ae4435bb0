"""The keys of the control Redis."""

from __future__ import annotations

from adapters.redis.past import PAST


class ControlKeys:
    """The Redis keys through which managers and connections communicate."""

    record = "gamecast:{control}:record"
    interests = "gamecast:{control}:wishes"
    published = "gamecast:{control}:published"
    lease = "gamecast:{control}:leader"
    news = "gamecast:{control}:news"
    asked = "gamecast:{control}:asked"
    incarnations = "gamecast:{control}:incarnations"
    connections = "gamecast:{control}:connections"
    alive = "gamecast:{control}:alive"
    looked = "gamecast:{control}:looked"
    nodes = "gamecast:{control}:nodes"
    lossy = "gamecast:{control}:lossy"
    expected = "gamecast:{control}:expected"
    probes = "gamecast:{control}:probes"
    led = "gamecast:{control}:led"
    parts = "gamecast:{control}:parts"
    held = "gamecast:{control}:held"
    gone = "gamecast:{control}:gone"
    past = PAST
    doubted = "gamecast:{control}:doubted"
    sole = "gamecast:{control}:sole"
    said = "gamecast:{control}:said"
    superseded = "gamecast:{control}:superseded"
    of_connections = (
        *(interests, published, asked, incarnations, connections, alive, expected, gone, sole, said),
        superseded,
    )
    """Of control.lua. It is given `connections` and names the others from that, as leading.lua does from `record`."""

    @staticmethod
    def rows(name: str) -> str:
        """Return the set of the regions that a connection to a network of one node has."""
        return f"gamecast:{{control}}:rows:{name}"
