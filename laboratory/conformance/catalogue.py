"""All scenarios, in the order in which a new client should pass them."""

from __future__ import annotations

from laboratory.conformance.deliveries import DELIVERIES
from laboratory.conformance.playing import Scenarios
from laboratory.conformance.publishes import PUBLISHES
from laboratory.conformance.reconnects import RECONNECTS

SCENARIOS = Scenarios({**DELIVERIES, **PUBLISHES, **RECONNECTS})
