"""The options of a load test, which are the same for every process of a run."""

from __future__ import annotations

import argparse
import base64
import binascii
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import orjson

from gamecast.client.networks import redacted
from loadtest.scenario import WORKLOADS, Scenario, make_scenario
from loadtest.shapes import SHAPES
from sequencing.errors import UsageError

TOKEN_VARIABLE = "GAMECAST_LOADTEST_TOKEN"
PLANTS = ("inversion", "loss", "duplicate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """See the help texts of `add_to`. ``run``: a name that is unique among the runs on the network."""

    network: str = ""
    gateway: str = ""
    token: str = ""
    servers: int = 8
    sockets: int = 0
    posters: int = 0
    regions: int = 16
    workload: str = "grid"
    trace: str = ""
    shape: str = "steady"
    rate: float = 10.0
    speed: float = 10.0
    seconds: float = 60.0
    settle: float = 30.0
    late: float = 15.0
    clock_margin: float = 0.0
    deliveries_max: int = 4_000_000
    seed: int = 1
    run: str = ""
    judgement: str = ""
    report: str = ""
    command: str = ""
    logs: str = ""
    plant: str = ""

    def __post_init__(self) -> None:
        users = (self.servers, self.sockets, self.posters)
        if min(users) < 0 or sum(users) < 1:
            raise UsageError("a load test needs users: --servers, --sockets or --posters must be above 0")
        if self.servers and not self.network:
            raise UsageError("--servers need a network: name its control Redis with --network URL")
        if (self.sockets or self.posters) and not self.gateway:
            raise UsageError("--sockets and --posters need a gateway: name it with --gateway URL")
        if self.shape not in SHAPES:
            raise UsageError(f"there is no shape {self.shape!r}: choose from {', '.join(SHAPES)}")
        if not (self.rate > 0 and self.speed > 0 and self.seconds > 0 and self.late > 0):
            raise UsageError("--rate, --speed, --seconds and --late must be above 0")
        if self.token:
            _subject(self.token)

    @classmethod
    def of(cls, parsed: Any, **changes: Any) -> Self:
        """Return the options that locust has parsed, with changes. Raises `UsageError`."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: getattr(parsed, name) for name in names} | changes)

    @property
    def users(self) -> int:
        """The number of users at full load."""
        return self.servers + self.sockets + self.posters

    def name_of(self, kind: str, slot: int) -> str:
        """Return the name of a user. With a token, the gateway permits names that begin with the token's subject."""
        name = f"{self.run}-{kind}-{slot}"
        return f"{_subject(self.token)}~{name}" if self.token and kind != "server" else name

    def scenario(self) -> Scenario:
        """Return the scenario, which is the same in every process."""
        return make_scenario(
            self.workload,
            servers=max(1, self.servers or self.sockets or self.posters),
            regions=self.regions,
            seed=self.seed,
            prefix=f"{self.run}-" if self.run else "",
            trace=Path(self.trace) if self.trace else None,
        )


def shown_command(program: str, arguments: Sequence[str]) -> str:
    """Return the command for a report: without the token, and without the passwords of URLs."""
    shown, is_secret = program.split(), False
    for argument in arguments:
        flag, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        text = "***" if is_secret or flag == "--token" else redacted(value) if "://" in value else value
        is_secret = argument == "--token"
        shown.append(argument if is_secret or (flag and not equals) else f"{flag}{equals}{text}")
    return shlex.join(shown)


def _subject(token: str) -> str:
    """Return the subject of a token, without verifying the token: the gateway does that. Raises `UsageError`."""
    try:
        claims = token.split(".")[1]
        return str(orjson.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])
    except (IndexError, KeyError, TypeError, binascii.Error, orjson.JSONDecodeError) as error:
        raise UsageError("--token is not a signed token with a subject: see `gamecast token`") from error


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser, locust's or that of `loadtest.command`."""
    group = parser.add_argument_group("gamecast", "What the users do")
    defaults = Options(network="-")
    for name, kind, text in (
        ("servers", int, "Game servers that embed the library."),
        ("sockets", int, "Clients of the gateway over WebSocket; ./dev loadtest has 16."),
        ("posters", int, "Publishers that post to the gateway over HTTP; ./dev loadtest has 2."),
        ("regions", int, "Regions, for workloads other than 'trace'."),
        ("rate", float, "Events/s of each user; the workload 'trace' has its own."),
        ("speed", float, "Speed of the workload 'trace', as a multiple of real time."),
        ("seconds", float, "Length of the load in seconds, from the first user on."),
        ("settle", float, "Seconds to wait at most for events in flight at the end."),
        ("late", float, "Seconds after which an undelivered event counts as lost during the run."),
        ("clock_margin", float, "Milliseconds by which the clocks of several machines may differ."),
        ("deliveries_max", int, "End the run at this number of deliveries: the judge keeps 0.25 KB for each."),
        ("seed", int, "Seed of the workload."),
        ("trace", str, "For the workload 'trace': prefix of a match's files, as in gamecast demo.  [default: made up]"),
    ):
        flag = "--" + name.replace("_", "-")
        default = getattr(defaults, name)
        shown = f"  [default: {default}]" if default != "" else ""
        group.add_argument(flag, dest=name, type=kind, default=default, help=text + shown)
    group.add_argument(
        "--token",
        default=os.environ.get(TOKEN_VARIABLE, ""),
        help=f"Signed token for the gateway. Better set {TOKEN_VARIABLE}, which process lists do not show.",
    )
    group.add_argument("--workload", choices=WORKLOADS, default="grid", help="Regions of the users.  [default: grid]")
    group.add_argument(
        "--shape", choices=tuple(SHAPES), default="steady", help="Course of the load.  [default: steady]"
    )


def add_hidden_to(parser: argparse.ArgumentParser) -> None:
    """Add the options that `loadtest.command` sets itself, or that only tests use."""
    group = parser.add_argument_group("gamecast, set by ./dev loadtest", "Needed if you start locust by hand")
    group.add_argument("--network", default="", help="URL of the network's control Redis.")
    group.add_argument("--gateway", default="", help="URL of the gateway, http:// or https://.")
    group.add_argument("--run", default="", help="Unique name of the run on the network; region names begin with it.")
    group.add_argument("--judgement", default="", help="File for the judgement, JSON.")
    group.add_argument("--report", default="", help="File for the report, HTML.")
    group.add_argument("--command", default="", help="The command, as the report has it.")
    group.add_argument("--logs", default="", help="Directory for delivery logs, as gamecast audit reads them.")
    group.add_argument(
        "--plant",
        choices=("", *PLANTS),
        default="",
        help="Plant this violation in one user's reports, to see the run fail.",
    )
