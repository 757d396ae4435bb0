"""A made-up match for those who have no recording: two teams in squads, fighting for a row of flags.

It has the shape of a recorded match (`demo.match.trace`) and the same kinds of events, and is the same for
the same seed. The rules are only as rich as makes servers overlap the way real ones do: squads move together, from flag
to flag, and fight where they meet the other team.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import numpy as np

from demo.match.trace import Match, MatchEvent, Player, Positions
from sequencing.errors import UsageError

TEAMS = ("1", "2")
SQUADS_PER_TEAM = 6
PLAYERS_PER_SQUAD = 5
MAP_M = 3000.0
"""The side of the map, whose middle is at 0, 0."""
FLAGS = 5
FLAG_RADIUS_M = 75.0
FOOT_M_PER_S = 5.0
DRIVE_M_PER_S = 14.0
DRIVE_DISTANCE_M = 400.0
"""Squads that are further than this from where they go take a vehicle."""
SCATTER_M = 25.0
"""How far from each other the members of a squad walk."""
RANGE_M = 200.0
SHOT_CHANCE = 0.4
"""That a player with an enemy in range shoots, each second."""
HIT_CHANCE = 0.15
HEALTH_MAX = 100
RESPAWN_S = 15
KITS = ("rifleman", "medic", "engineer", "marksman")
WEAPONS = {"rifleman": "rifle", "medic": "carbine", "engineer": "shotgun", "marksman": "scoped_rifle"}

Point = tuple[float, float]


def generate_skirmish(seed: int = 0, *, duration_s: int = 480) -> Match:
    """Return a match of 60 players on a map of 3 km: 7,000 to 9,000 events with a position in 8 minutes.

    Deterministic in its arguments. Raises `UsageError` for a duration of less than a second.
    """
    if duration_s < 1:
        raise UsageError(f"a skirmish lasts at least 1 s, not {duration_s}")
    battle = _Battle(random.Random(seed))
    battle.begin()
    for second in range(1, duration_s + 1):
        battle.advance(float(second))
    return battle.recorded(f"skirmish-{seed}")


@dataclass(slots=True, eq=False)
class _Soldier:
    name: str
    squad: _Squad
    kit: str
    place: Point = (0.0, 0.0)
    health: int = 0
    """0: down or not yet in the game."""
    back_at_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Squad:
    team: str
    number: str
    base: Point
    place: Point
    vehicle: str
    goal: int = 0
    driving: bool = False
    members: list[_Soldier] = field(default_factory=list)

    @property
    def alive(self) -> list[_Soldier]:
        return [soldier for soldier in self.members if soldier.health > 0]


@dataclass(slots=True, eq=False)
class _Flag:
    name: str
    place: Point
    owner: str = ""


class _Battle:
    """The state of the game, and the record so far."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._now_s = 0.0
        self._events: list[MatchEvent] = []
        self._positions: list[tuple[float, str, float, float, str, str, str, str]] = []
        self._flags = self._lay_flags()
        self._squads = [self._muster(team, number) for team in TEAMS for number in range(1, SQUADS_PER_TEAM + 1)]
        self._soldiers = [soldier for squad in self._squads for soldier in squad.members]

    def begin(self) -> None:
        """Record what a server records at the start: the flags, and everyone joining."""
        for flag in self._flags:
            self._record("flag", target=flag.name, place=flag.place, detail=f"radius_m={FLAG_RADIUS_M:g}")
        for soldier in self._soldiers:
            self._record("join", actor=soldier)
            self._record("squad", actor=soldier, detail=soldier.squad.number)

    def advance(self, now_s: float) -> None:
        """Play one second."""
        self._now_s = now_s
        for soldier in self._soldiers:
            if soldier.health == 0 and soldier.back_at_s <= now_s:
                self._spawn(soldier)
        for squad in self._squads:
            self._march(squad)
        for soldier in self._soldiers:
            if soldier.health > 0 and not soldier.squad.driving:
                self._fight(soldier)
        for flag in self._flags:
            self._contest(flag)

    def recorded(self, name: str) -> Match:
        """Return the match so far; positions are by second, and among them by player."""
        columns = [list(column) for column in zip(*self._positions, strict=True)]
        t_s, player, x_m, z_m, alive, team, squad, in_vehicle = columns
        return Match(
            name=name,
            players=tuple(Player(s.name, {"team_last": s.squad.team}) for s in self._soldiers),
            positions=Positions(
                t_s=np.array(t_s, np.float64),
                player=[str(one) for one in player],
                x_m=np.array(x_m, np.float64),
                z_m=np.array(z_m, np.float64),
                extra={
                    key: [str(one) for one in column]
                    for key, column in (("alive", alive), ("team", team), ("squad", squad), ("in_vehicle", in_vehicle))
                },
            ),
            events=tuple(self._events),
        )

    def _lay_flags(self) -> list[_Flag]:
        """Lay the flags from one base to the other, off the straight line."""
        step = MAP_M * 0.8 / (FLAGS + 1)
        places = [(-MAP_M * 0.4 + step * (n + 1), self._random.uniform(-0.2, 0.2) * MAP_M) for n in range(FLAGS)]
        return [_Flag(f"c{number}", place) for number, place in enumerate(places)]

    def _muster(self, team: str, number: int) -> _Squad:
        side = -1 if team == TEAMS[0] else 1
        base = (side * MAP_M * 0.45, (number - (SQUADS_PER_TEAM + 1) / 2) * 60.0)
        first = (0 if team == TEAMS[0] else SQUADS_PER_TEAM) + number - 1
        # The squads of a team begin at different flags, so that there is a front and not a crowd.
        goal = (number - 1) % FLAGS if team == TEAMS[0] else FLAGS - 1 - (number - 1) % FLAGS
        squad = _Squad(team, str(number), base, base, vehicle=f"v{first}", goal=goal)
        for member in range(PLAYERS_PER_SQUAD):
            kit = KITS[member % len(KITS)]
            squad.members.append(_Soldier(f"p{first * PLAYERS_PER_SQUAD + member:03}", squad, kit))
        return squad

    def _spawn(self, soldier: _Soldier) -> None:
        squad = soldier.squad
        # Beside the squad if any of it stands, else all come back at the base.
        if not squad.alive:
            squad.place, squad.driving = squad.base, False
        soldier.place = self._near(squad.place)
        soldier.health = HEALTH_MAX
        if self._random.random() < 0.3:
            soldier.kit = self._random.choice(KITS)
        self._record("spawn", actor=soldier, place=soldier.place)
        self._record("kit", actor=soldier, place=soldier.place, detail=soldier.kit)

    def _march(self, squad: _Squad) -> None:
        """Move the squad towards its flag, or to the next when that is taken; who meets enemies stays to fight."""
        if not squad.alive:
            return
        flag = self._flags[squad.goal]
        if flag.owner == squad.team and self._random.random() < 0.1:
            squad.goal = self._next_goal(squad)
        engaged = any(math.dist(squad.place, enemy.place) < RANGE_M for enemy in self._enemies(squad) if enemy.alive)
        far = not engaged and math.dist(squad.place, flag.place) > DRIVE_DISTANCE_M
        if far != squad.driving:
            squad.driving = far
            kind = "vehicle_enter" if far else "vehicle_exit"
            for soldier in squad.alive:
                self._record(kind, actor=soldier, target=squad.vehicle, place=soldier.place)
        if not engaged:
            squad.place = _toward(squad.place, flag.place, DRIVE_M_PER_S if squad.driving else FOOT_M_PER_S)
        for soldier in squad.alive:
            soldier.place = squad.place if squad.driving else self._near(squad.place)
            self._see(soldier)

    def _next_goal(self, squad: _Squad) -> int:
        """Choose one of the two nearest flags that the team does not own, or any if it owns all."""
        wanted = [number for number, flag in enumerate(self._flags) if flag.owner != squad.team]
        wanted.sort(key=lambda number: math.dist(squad.place, self._flags[number].place))
        return self._random.choice(wanted[:2] or range(FLAGS))

    def _fight(self, soldier: _Soldier) -> None:
        enemies = [
            enemy
            for squad in self._enemies(soldier.squad)
            if math.dist(squad.place, soldier.place) < RANGE_M + 2 * SCATTER_M
            for enemy in squad.alive
            if math.dist(enemy.place, soldier.place) < RANGE_M
        ]
        if not enemies or self._random.random() >= SHOT_CHANCE:
            return
        target = self._random.choice(enemies)
        weapon = WEAPONS[soldier.kit]
        self._record("shot", actor=soldier, target=target.name, place=soldier.place, detail=weapon)
        if self._random.random() >= HIT_CHANCE:
            return
        harm = min(target.health, self._random.randint(10, 45))
        target.health -= harm
        # As recordings have it: whose bullet it was is not told, only who was hurt.
        self._record("hurt", target=target.name, place=target.place, team=target.squad.team, detail=str(harm))
        if target.health == 0:
            target.back_at_s = self._now_s + RESPAWN_S
            self._record("kill", actor=soldier, target=target.name, place=target.place, detail=weapon)
            self._record("down", actor=target, place=target.place)
            self._see(target)

    def _enemies(self, squad: _Squad) -> list[_Squad]:
        return [other for other in self._squads if other.team != squad.team]

    def _contest(self, flag: _Flag) -> None:
        near = {
            soldier.squad.team
            for soldier in self._soldiers
            if soldier.health > 0 and math.dist(soldier.place, flag.place) < FLAG_RADIUS_M
        }
        if len(near) == 1 and near != {flag.owner}:
            (flag.owner,) = near
            self._record("flag_owner", target=flag.name, place=flag.place, team=flag.owner)

    def _near(self, place: Point) -> Point:
        spread = self._random.uniform
        return round(place[0] + spread(-SCATTER_M, SCATTER_M), 1), round(place[1] + spread(-SCATTER_M, SCATTER_M), 1)

    def _see(self, soldier: _Soldier) -> None:
        squad = soldier.squad
        states = ("1" if soldier.health else "0", squad.team, squad.number, "1" if squad.driving else "0")
        self._positions.append((self._now_s, soldier.name, *soldier.place, *states))

    def _record(
        self,
        kind: str,
        *,
        actor: _Soldier | None = None,
        target: str = "",
        place: Point | None = None,
        team: str = "",
        detail: str = "",
    ) -> None:
        x_m, z_m = place if place is not None else (None, None)
        side = team or (actor.squad.team if actor is not None else "")
        name = actor.name if actor is not None else ""
        extra = {"team": side} if side else {}
        self._events.append(MatchEvent(self._now_s, kind, name, target, x_m, z_m, detail, extra))


def _toward(place: Point, goal: Point, reach_m: float) -> Point:
    distance = math.dist(place, goal)
    if distance <= reach_m:
        return goal
    part = reach_m / distance
    return round(place[0] + (goal[0] - place[0]) * part, 1), round(place[1] + (goal[1] - place[1]) * part, 1)
