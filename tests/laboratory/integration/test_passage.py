"""An event passes few calls and files on its way to another client, whether they share their sockets or not."""

from __future__ import annotations

import pytest

from adapters.embedded.server import EmbeddedServer
from laboratory.bench.passage import passage


@pytest.mark.parametrize("shares", [False, True])
async def test_an_event_passes_no_more_calls_than_it_did(redis_server: EmbeddedServer, shares: bool) -> None:
    """Who adds some finds a way to do without, or says here what they are worth."""
    found = await passage(redis_server.url, shares=shares)
    assert found.calls < 97
    assert found.files <= 33
