"""The peers by name; a new one is a module here and a line below."""

from __future__ import annotations

from gamecast.bench.peers.batched_streams import BatchedStreamsPeer
from gamecast.bench.peers.channel_layer import ChannelLayerPeer
from gamecast.bench.peers.jetstream import JetStreamPeer
from gamecast.bench.peers.network import GamecastPeer
from gamecast.bench.peers.peer import Peer
from gamecast.bench.peers.pubsub import PubSubPeer
from gamecast.bench.peers.single_stream import SingleStreamPeer
from gamecast.bench.peers.streams import StreamsPeer

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
    )
}
