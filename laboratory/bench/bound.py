"""A bound for every system that decodes events: one core that decodes them and calls back, and does nothing else."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence

import orjson

from laboratory.bench.receiving import Recorder
from laboratory.bench.workload import payload_of

BATCH_EVENTS = 64
"""As many as a full frame of gamecast has: one document of JSON for each event takes longer."""

RUNS = 5


def decoding_per_s(events: int = 100_000) -> float:
    """Return how many deliveries/s one core decodes and hands to the bench's callback: the most of some runs."""
    documents = [
        orjson.dumps([payload_of(event) for event in range(first, first + BATCH_EVENTS)])
        for first in range(0, events, BATCH_EVENTS)
    ]
    gc.collect()
    gc.freeze()  # as in the trials
    try:
        return BATCH_EVENTS * len(documents) / min(_seconds(documents) for _ in range(RUNS))
    finally:
        gc.unfreeze()


def _seconds(documents: Sequence[bytes]) -> float:
    deliver, loads = Recorder(measured_from=BATCH_EVENTS * len(documents)).deliver, orjson.loads
    began = time.thread_time()
    for document in documents:
        for payload in loads(document):
            deliver(payload)
    return time.thread_time() - began
