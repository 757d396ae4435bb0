"""What the tests of the library's interface share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.integration.networks import KINDS, Network


@pytest.fixture(params=KINDS)
async def network(request: pytest.FixtureRequest) -> AsyncIterator[Network]:
    """A fresh network of each kind."""
    async with AsyncExitStack() as stack:
        yield await Network.start(request.param, stack)
