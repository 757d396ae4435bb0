"""A match hosted by game servers: the regions of each server, and the events that it publishes, in recorded order.

*Hosting.* A squad lives on one server, since its members talk to each other and respawn beside each other. A player's
squad is the first that it is in during the replayed window; a player without a squad is a group of one. In the order in
which their first members joined, groups go to the server that hosts the fewest players so far, the first of several
such. If there are fewer groups than servers, the largest group is halved until there are enough. So both teams are on
every server, and servers overlap where teams meet: at the flags. Servers that share one world overlap in this way: by
which players play together, not by where players stand.

*Publishing.* An event is published by the server of its actor; if that is no player, by that of its target; if neither
is, by the server that the CRC-32 of the region's name picks. It goes to the cell of its place. Events without a place
are not published.

*Subscribing.* A server has the cells that its players' views touch in the window (`demo.match.cells`), and those
that it publishes to. A position holds until the player's next one, or until the player leaves. A server that roams has,
at each time, the cells that its players' views touch then (`demo.match.roaming`); the events that it publishes
elsewhere go to the servers that are there.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from demo.match.cells import cells_in_view, cells_of_views, neighbours_of, region_name, region_of
from demo.match.roaming import LINGER_S, Change, View, agenda, changes_of, regions_ever, settled
from demo.match.trace import Match, MatchEvent
from sequencing.checkers import Published
from sequencing.errors import UsageError

NO_SQUAD = ("", "0")

Payload = dict[str, object]


@dataclass(frozen=True, slots=True)
class Publication:
    """One event to be published by ``server`` to ``region``; its unique id is in the payload too, as ``id``."""

    t_s: float
    server: str
    region: str
    event: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class Workload:
    """A replay: servers, their regions, and publications in recorded order.

    ``changes``: server → when it joins and leaves what, where servers roam; then ``membership`` holds all regions that
    they are ever in. Where they do not, it is empty, and every server has a region.
    """

    match: str
    servers: tuple[str, ...]
    membership: Mapping[str, frozenset[str]]
    publications: tuple[Publication, ...]
    players: int
    skipped_without_position: int
    """Events of the window that are nowhere, so that no region could hear of them."""
    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    linger_s: float = LINGER_S
    """How long a server that roams stays in a region that none of its players sees any more."""
    expected: frozenset[tuple[str, str]] = frozenset()
    """Pairs of regions that are declared before the replay begins."""

    @property
    def roams(self) -> bool:
        """Whether servers join and leave regions while the replay runs."""
        return bool(self.changes)

    @property
    def regions(self) -> frozenset[str]:
        """All regions; each has a subscriber."""
        return frozenset[str]().union(*self.membership.values())

    def expected_deliveries(self) -> dict[str, int]:
        """Return how many deliveries each server must make: every publication of its regions, once.

        Of servers that roam: how many they would make if they were in a region as soon as they want to be.
        """
        if self.roams:
            return self._deliveries_on_the_way()
        published = Counter(publication.region for publication in self.publications)
        return {server: sum(published[region] for region in self.membership[server]) for server in self.servers}

    def _deliveries_on_the_way(self) -> dict[str, int]:
        present: dict[str, set[str]] = {}
        for server, regions in settled(self.changes).items():
            for region in regions:
                present.setdefault(region, set()).add(server)
        deliveries = dict.fromkeys(self.servers, 0)
        for step in self.steps():
            if isinstance(step, Publication):
                for server in present.get(step.region, ()):
                    deliveries[server] += 1
                continue
            server, change = step
            for region in change.leaves:
                present[region].discard(server)
            for region in change.joins:
                present.setdefault(region, set()).add(server)
        return deliveries

    def steps(self) -> Iterator[Publication | tuple[str, Change]]:
        """Yield the steps after the servers have settled, by time: joins and leaves, then publications."""
        changes = agenda(self.changes)
        following = next(changes, None)
        for publication in self.publications:
            while following is not None and following[1].t_s <= publication.t_s:
                yield following
                following = next(changes, None)
            yield publication
        if following is not None:
            yield following
        yield from changes

    def published_by(self, server: str) -> list[Publication]:
        """Return what the server publishes, in order."""
        return [publication for publication in self.publications if publication.server == server]

    def published(self) -> list[Published]:
        """Return what the checkers count losses against."""
        return [Published(publication.event, publication.region) for publication in self.publications]

    def publication_order(self) -> dict[str, list[str]]:
        """Return the ids of each server's events, in the order in which it publishes them."""
        order: dict[str, list[str]] = {server: [] for server in self.servers}
        for publication in self.publications:
            order[publication.server].append(publication.event)
        return order


def build_workload(
    match: Match,
    *,
    cell_m: float = 250.0,
    radius_m: float = 100.0,
    servers: int | None = 8,
    start_s: float = 0.0,
    duration_s: float | None = None,
    moves: bool = False,
    roam: bool = False,
    grid: bool = False,
) -> Workload:
    """Turn the part of a match from ``start_s``, of ``duration_s`` (None: to the end), into a workload.

    With ``moves``, each row of the positions is an event as well, of the kind ``moved``, before the other events of the
    same instant. ``servers``: None for one a player. With ``roam``, servers are in the regions that their players see
    at the time; with ``grid``, they leave a region at once, and it is declared which cells one view can touch. Times
    are the trace's. Takes a few seconds for 140,000 moves.

    Raises `UsageError`, naming the option, for options out of range, for a window in which nothing can be published,
    and for more servers than players.
    """
    _check_options(cell_m=cell_m, radius_m=radius_m, servers=servers, start_s=start_s, duration_s=duration_s)
    window = _Window(start_s, math.inf if duration_s is None else start_s + duration_s)
    in_window = [event for event in match.events if window.start_s <= event.t_s < window.end_s]
    placed = [event for event in in_window if event.x_m is not None]
    happenings = sorted([*(_moves(match, window) if moves else ()), *placed], key=lambda event: event.t_s)
    if not happenings:
        raise UsageError(_nothing_to_publish(match, window))
    rows = _rows_in_view(match, window)
    joined = dict.fromkeys([*(player.name for player in match.players), *match.positions.player])
    publishers = [_player_of(event, joined) for event in placed]
    groups = _groups(match, rows, joined, publishers)
    names = server_names(servers or sum(map(len, groups)))
    server_of = _host(groups, names)
    publications = tuple(_publications(happenings, names, server_of, cell_m=cell_m))
    changes: dict[str, tuple[Change, ...]] = {}
    linger_s = 0.0 if grid else LINGER_S
    expected: frozenset[tuple[str, str]] = frozenset()
    if roam:
        views = _views(match, window, rows, cell_m=cell_m, radius_m=radius_m)
        seen: dict[str, list[list[View]]] = {server: [] for server in names}
        for player, own in views.items():
            seen[server_of[player]].append(own)
        # Behind the last event, no event would show the joins and leaves.
        end_s = math.nextafter(publications[-1].t_s, math.inf)
        changes = {server: changes_of(seen[server], end_s=end_s, linger_s=linger_s) for server in names}
        membership = {server: regions_ever(changes[server]) for server in names}
        if grid:
            cells = {cell for own in views.values() for _, touched in own for cell in touched}
            expected = frozenset(
                (region_name(one), region_name(other))
                for one, other in neighbours_of(cells, cell_m=cell_m, radius_m=radius_m)
            )
    else:
        membership = _membership(match, rows, names, server_of, publications, cell_m=cell_m, radius_m=radius_m)
    return Workload(
        match=match.name,
        servers=names,
        membership=membership,
        publications=publications,
        players=len(server_of),
        skipped_without_position=len(in_window) - len(placed),
        changes=changes,
        linger_s=linger_s,
        expected=expected,
    )


def server_names(servers: int) -> tuple[str, ...]:
    """Return the names of ``servers`` game servers."""
    return tuple(f"server-{number}" for number in range(1, servers + 1))


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a match that is replayed: from ``start_s`` to before ``end_s``."""

    start_s: float
    end_s: float

    def rows(self, match: Match) -> range:
        first, end = np.searchsorted(match.positions.t_s, [self.start_s, self.end_s]).tolist()
        return range(first, end)


def _check_options(
    *, cell_m: float, radius_m: float, servers: int | None, start_s: float, duration_s: float | None
) -> None:
    if not (cell_m > 0 and math.isfinite(cell_m)):
        raise UsageError(f"--cell-m {cell_m:g}: the side of a cell must be more than 0 metres; 250 is usual")
    if not (radius_m >= 0 and math.isfinite(radius_m)):
        raise UsageError(f"--radius-m {radius_m:g}: the radius of a view must be 0 metres or more; 100 is usual")
    if servers is not None and servers < 1:
        raise UsageError(f"--servers {servers}: there must be at least 1 server")
    if not math.isfinite(start_s):
        raise UsageError(f"--start-s {start_s:g}: the start must be a time of the trace, in seconds")
    if duration_s is not None and not duration_s > 0:
        raise UsageError(f"--duration-s {duration_s:g}: the window must be longer than 0 s; leave it out to replay all")


def _nothing_to_publish(match: Match, window: _Window) -> str:
    times = [event.t_s for event in match.events if event.x_m is not None]
    if not times:
        return f"the trace {match.name} has no event with a position: nothing can be published"
    until = "its end" if math.isinf(window.end_s) else f"{window.end_s:g} s"
    return (
        f"nothing with a position happens from --start-s {window.start_s:g} to {until}: the events of {match.name} "
        f"go from {min(times):g} to {max(times):g} s; correct --start-s or --duration-s"
    )


def _rows_in_view(match: Match, window: _Window) -> list[int]:
    """Return the rows of the positions that hold during the window: each player's at its start, then those in it."""
    t_s, player = match.positions.t_s, match.positions.player
    inside = window.rows(match)
    held = {player[row]: row for row in range(inside.start)}
    for event in match.events:
        row = held.get(event.actor)
        if event.kind == "leave" and event.t_s < window.start_s and row is not None and t_s[row] <= event.t_s:
            del held[event.actor]
    return [*sorted(held.values()), *inside]


def _player_of(event: MatchEvent, players: Mapping[str, object]) -> str | None:
    """Return the player whose server publishes the event, if there is one."""
    return next((name for name in (event.actor, event.target) if name in players), None)


def _groups(
    match: Match, rows: Iterable[int], joined: Iterable[str], publishers: Iterable[str | None]
) -> list[list[str]]:
    """Return the players of the window, those seen or publishing, by squad, in the order in which they joined."""
    positions = match.positions
    blank: Sequence[str] = [""] * len(positions)
    team, squad = (positions.extra.get(name, blank) for name in ("team", "squad"))
    squad_of: dict[str, tuple[str, ...] | None] = {}
    for row in rows:
        player = positions.player[row]
        if squad_of.get(player) is None:
            squad_of[player] = (team[row], squad[row]) if squad[row] not in NO_SQUAD else None
    for publisher in publishers:
        if publisher is not None:
            squad_of.setdefault(publisher, None)
    groups: dict[tuple[str, ...], list[str]] = {}
    for player in joined:
        if player in squad_of:
            groups.setdefault(squad_of[player] or (player,), []).append(player)
    return list(groups.values())


def _host(groups: list[list[str]], servers: Sequence[str]) -> dict[str, str]:
    """Return the server of each player."""
    players = sum(map(len, groups))
    if players < len(servers):
        raise UsageError(
            f"--servers {len(servers)} is more than the {players} players of the replayed window: "
            "ask for fewer, or replay more with --start-s and --duration-s"
        )
    while len(groups) < len(servers):
        largest = max(range(len(groups)), key=lambda place: len(groups[place]))
        half = (len(groups[largest]) + 1) // 2
        groups[largest : largest + 1] = [groups[largest][:half], groups[largest][half:]]
    hosted = dict.fromkeys(servers, 0)
    server_of: dict[str, str] = {}
    for group in groups:
        chosen = min(servers, key=hosted.__getitem__)
        hosted[chosen] += len(group)
        server_of.update(dict.fromkeys(group, chosen))
    return server_of


def _membership(
    match: Match,
    rows: Iterable[int],
    servers: Sequence[str],
    server_of: Mapping[str, str],
    publications: Iterable[Publication],
    *,
    cell_m: float,
    radius_m: float,
) -> dict[str, frozenset[str]]:
    """Return the regions that each server has from the beginning to the end."""
    membership = {server: set[str]() for server in servers}
    for server, hosted in _by_server(match, rows, server_of).items():
        x_m, z_m = match.positions.x_m[hosted], match.positions.z_m[hosted]
        membership[server].update(map(region_name, cells_in_view(x_m, z_m, cell_m=cell_m, radius_m=radius_m)))
    for publication in publications:
        membership[publication.server].add(publication.region)
    return {server: frozenset(regions) for server, regions in membership.items()}


def _views(
    match: Match, window: _Window, rows: Sequence[int], *, cell_m: float, radius_m: float
) -> dict[str, list[View]]:
    """Return the views of each player in the window: from its start on, or the player's first position in it."""
    positions = match.positions
    cells = cells_of_views(positions.x_m[rows], positions.z_m[rows], cell_m=cell_m, radius_m=radius_m)
    times = np.maximum(positions.t_s[rows], window.start_s).tolist()
    views: dict[str, list[View]] = {}
    for row, t_s, touched in zip(rows, times, cells, strict=True):
        views.setdefault(positions.player[row], []).append((t_s, touched))
    for event in match.events:
        if event.kind == "leave" and event.actor in views and window.start_s <= event.t_s < window.end_s:
            views[event.actor].append((event.t_s, frozenset()))
    for own in views.values():
        own.sort(key=lambda view: view[0])  # a player that leaves sees nothing, so that view is the last of its time
    return views


def _by_server(match: Match, rows: Iterable[int], server_of: Mapping[str, str]) -> dict[str, list[int]]:
    rows_of: dict[str, list[int]] = {}
    for row in rows:
        rows_of.setdefault(server_of[match.positions.player[row]], []).append(row)
    return rows_of


def _moves(match: Match, window: _Window) -> Iterator[MatchEvent]:
    positions, rows = match.positions, window.rows(match)
    names = list(positions.extra)
    others = [positions.extra[name] for name in names]
    x_m, z_m, t_s = (column.tolist() for column in (positions.x_m, positions.z_m, positions.t_s))
    for row in rows:
        extra = dict(zip(names, [column[row] for column in others], strict=True))
        yield MatchEvent(t_s[row], "moved", positions.player[row], "", x_m[row], z_m[row], "", extra)


def _publications(
    events: Iterable[MatchEvent], servers: Sequence[str], server_of: Mapping[str, str], *, cell_m: float
) -> Iterator[Publication]:
    for number, event in enumerate(events):
        assert event.x_m is not None
        assert event.z_m is not None
        region = region_of(event.x_m, event.z_m, cell_m=cell_m)
        player = _player_of(event, server_of)
        server = server_of[player] if player else servers[zlib.crc32(region.encode()) % len(servers)]
        name = f"e{number:06}"
        yield Publication(event.t_s, server, region, name, _payload(event, name))


def _payload(event: MatchEvent, name: str) -> Payload:
    """Return the payload of an event: nothing empty, and the other columns of the trace as they are."""
    payload: Payload = {"id": name, "t_s": event.t_s, "kind": event.kind}
    for key, value in (("actor", event.actor), ("target", event.target), ("detail", event.detail)):
        if value:
            payload[key] = value
    payload.update(x_m=_metres(event.x_m), z_m=_metres(event.z_m))
    for key, value in event.extra.items():
        if value:
            # A game may have ids of its own: ours is the one that the logs are judged by.
            payload[f"{key}_in_trace" if key in payload else key] = value
    return payload


def _metres(number: float | None) -> float | None:
    return int(number) if number is not None and float(number).is_integer() else number
