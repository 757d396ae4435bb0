"""One run: a network, what befalls it, the last round, and the judgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson

from demo.patience import Deadline
from laboratory.chaos.board import Board, Phase, Slot
from laboratory.chaos.clock import clock_library
from laboratory.chaos.faults import Struck, cannot, carry_out
from laboratory.chaos.judging import judge_run
from laboratory.chaos.kept import Kept, write_kept
from laboratory.chaos.network import MANAGERS, NODES, ChaosError, Network
from laboratory.chaos.notes import read_notes
from laboratory.chaos.outcome import Outcome
from laboratory.chaos.recovery import measure
from laboratory.chaos.schedule import DEALT, DEALT_WITH_REPLICAS, Fault, Kind, make_schedule
from sequencing.plan import Plan

START_S_MAX = 60.0
RECOVER_S = 3.0
"""Traffic goes on for so long after the faults."""

REST_S_MAX = 60.0
"""A server that does not come back into a region is said to have left it after 10 s."""

QUIET_S = 1.5
"""A network that delivers nothing for this long, and has nothing in flight, is at rest."""

END_S_MAX = 20.0
LOOK_EVERY_S = 0.25
FAULTS_FILE, KEPT_FILE, PLAN_FILE = "faults.jsonl", "kept.jsonl", "plan.json"

Progress = Callable[[float, int, int], None]
"""Called now and then with the seconds that have passed, the faults that are over, and the events delivered."""


async def run_chaos(
    seed: int,
    seconds: float,
    servers: int,
    directory: Path,
    *,
    lasting: bool,
    lossy: bool,
    walk: bool,
    replicas: int,
    progress: Progress,
    command: Callable[..., None],
) -> Outcome:
    """Run a network under the faults of a seed and judge it; all logs are in ``directory``, which goes with this
    process unless it is to be ``lasting``; ``lossy``: two of three nodes keep nothing over a restart; ``walk``: servers
    only go from a region to the next ones, and say so beforehand; ``replicas``, ``command``: see `Network`.

    Raises `ChaosError` when the network cannot be started, `EmbeddedServerError` without Redis. Cancelled, it ends all
    that it started.
    """
    left_out = () if replicas else await asyncio.to_thread(cannot)
    library = None if replicas or Kind.CLOCK_JUMPED in left_out else clock_library()
    network = Network(
        directory,
        servers=servers,
        seed=seed,
        lasting=lasting,
        lossy=lossy,
        walk=walk,
        replicas=replicas,
        clock_library=library,
        command=command,
    )
    faults = make_schedule(
        seed,
        seconds,
        nodes=NODES,
        relays=network.relay_names,
        managers=MANAGERS,
        servers=network.server_names,
        without=left_out,
        deal=DEALT_WITH_REPLICAS if replicas else DEALT,
    )
    try:
        outcome = await _run(network, faults, seed, seconds, progress, lasting=lasting, left_out=left_out)
    except ChaosError:
        network.release(keep=True)  # the error says where to look
        raise
    except BaseException:
        network.release(keep=False)
        raise
    network.release(keep=not outcome.fine)
    return outcome


async def _run(
    network: Network,
    faults: list[Fault],
    seed: int,
    seconds: float,
    progress: Progress,
    *,
    lasting: bool,
    left_out: tuple[Kind, ...],
) -> Outcome:
    struck: list[Struck] = []
    async with network:
        await _all_open(network)
        begin_ns = time.monotonic_ns()
        happening = asyncio.create_task(carry_out(network, faults, struck), name="chaos faults")
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until or not happening.done():
                await asyncio.wait([happening], timeout=LOOK_EVERY_S)
                if happening.done():
                    happening.result()  # a fault that could not be carried out ends the run
                    await asyncio.sleep(LOOK_EVERY_S)
                progress(seconds - max(0.0, until - time.monotonic()), len(struck), network.board.total(Slot.DELIVERED))
        finally:  # else one would start again what is about to be ended
            happening.cancel()
            await asyncio.gather(happening, return_exceptions=True)
        await asyncio.sleep(RECOVER_S)
        end_ns = time.monotonic_ns()
        deadline = Deadline(REST_S_MAX)
        unrest = await come_to_rest(network.board, network.server_names, deadline, lossy=bool(network.losing))
        settled_s = (time.monotonic_ns() - end_ns) / 1e9
        kept = await network.kept()
        plan = await network.plan()
        _write_files(network.directory, kept, plan, struck)
        hanging = await network.end_servers(END_S_MAX)
    notes = read_notes({name: network.delivery_file(name) for name in network.server_names})
    return Outcome(
        seed=seed,
        seconds=seconds,
        servers=len(network.server_names),
        scheduled=len(faults),
        struck=tuple(struck),
        notes=notes,
        judgement=judge_run(
            notes, kept, unrest, lossy=range(plan.first_epoch, plan.epoch) if network.losing else range(0)
        ),
        recovery=measure(notes, struck, begin_ns=begin_ns, end_ns=end_ns),
        settled_s=settled_s,
        ended_by_themselves=tuple(network.ended_by_themselves),
        hanging=tuple(hanging),
        epochs=plan.epoch - plan.first_epoch + 1,
        directory=network.directory,
        lasting=lasting,
        lossy=bool(network.losing),
        replicas=network.groups.replicas if network.groups is not None else 0,
        left_out=left_out,
    )


def _write_files(directory: Path, kept: list[Kept], plan: Plan, struck: list[Struck]) -> None:
    """Write beside the notes what the network has at the end, and what befell it, by the same clock."""
    write_kept(directory / KEPT_FILE, kept)
    (directory / PLAN_FILE).write_bytes(plan.to_json())
    lines = [orjson.dumps(asdict(fault)) for fault in sorted(struck, key=lambda each: each.begin_ns)]
    (directory / FAULTS_FILE).write_bytes(b"".join(line + b"\n" for line in lines))


async def _all_open(network: Network) -> None:
    deadline = Deadline(START_S_MAX)
    while busy := [number for number in range(len(network.server_names)) if not _follows(network, number)]:
        if deadline.passed:
            raise ChaosError(f"{network.server_names[busy[0]]} did not get anything at all; see {network.directory}")
        await asyncio.sleep(LOOK_EVERY_S)


def _follows(network: Network, number: int) -> bool:
    return bool(network.board.get(number, Slot.DELIVERED))


async def come_to_rest(board: Board, names: Sequence[str], deadline: Deadline, *, lossy: bool) -> str:
    """Have servers settle, publish one more round, and wait until all is delivered; return what is not, if anything.

    ``names``: of all servers; ``lossy``: as of `Board.busy`.
    """
    for phase in (Phase.SETTLE, Phase.LAST, Phase.LOOK):
        board.phase = phase
        seen, since = -1, time.monotonic()
        while (busy := board.busy(names, lossy=lossy)) or time.monotonic() - since < QUIET_S:
            if deadline.passed:
                return "; ".join(busy) or "events are still handed out"
            await asyncio.sleep(LOOK_EVERY_S / 5)
            if (delivered := board.total(Slot.DELIVERED)) != seen or busy:
                seen, since = delivered, time.monotonic()
    return ""
