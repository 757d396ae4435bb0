"""The peers by name; a new one is a module here and a line below."""

from __future__ import annotations

from laboratory.bench.peers.bare import BarePeer
from laboratory.bench.peers.batched_streams import BatchedStreamsPeer
from laboratory.bench.peers.channel_layer import ChannelLayerPeer
from laboratory.bench.peers.jetstream import JetStreamPeer
from laboratory.bench.peers.network import GamecastPeer
from laboratory.bench.peers.peer import Peer
from laboratory.bench.peers.pubsub import PubSubPeer
from laboratory.bench.peers.single_stream import SingleStreamPeer
from laboratory.bench.peers.streams import StreamsPeer

OURS: Peer = GamecastPeer()
OTHERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        PubSubPeer(),
        StreamsPeer(),
        BatchedStreamsPeer(),
        SingleStreamPeer(),
        JetStreamPeer(),
        ChannelLayerPeer(),
        GamecastPeer("gamecast-replicas", replicas=2),
        GamecastPeer("gamecast-shared", shares=True),
        JetStreamPeer("nats-replicas", servers=3),
        BarePeer(),
    )
}

BY_NAME_ONLY = "gamecast-replicas", "nats-replicas", "gamecast-shared"
"""Peers that are measured only if they are named. With replicas, each event has three copies, and JetStream waits for
two of them. With ``gamecast-shared``, the subscribers share their sockets, as many in one process should."""
