"""The game: what bots and chests are, and what an event does to them. No clock, no randomness, whole numbers only.

Four round regions stand in a ring, and each overlaps with its two neighbours. In each overlap, an *arena*, bots fight
over chests. A bot says what it does in the region whose middle is nearer, so the events of one arena come through two
regions, and who watches both must hear them in the order in which everybody else hears them: whoever grabs a chest
first has the loot, and the last one to hit fells the other. Visitors have figures, which do the same.

Each arena has a hoard, too, which only visitors take. Whether it may be taken is not decided here: the event that takes
it has a condition, so there is one such event for each hoard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

SIZE = 120
REGIONS: dict[str, tuple[int, int]] = {"meadow": (40, 40), "forest": (80, 40), "ruins": (80, 80), "marsh": (40, 80)}
"""Region → its middle."""
RADIUS = 27
ARENAS: dict[str, tuple[str, str]] = {
    "copse": ("meadow", "forest"),
    "gate": ("forest", "ruins"),
    "ford": ("ruins", "marsh"),
    "dike": ("marsh", "meadow"),
}
"""Arena → the two regions that overlap there. The first is its home region, which no other arena has as its first:
visitors arrive and leave there, and its keys are the door and the hoard."""
BOWS = ("copse", "gate")
"""Arenas in which figures shoot from one region into the other. Regions of such shots enter the network at one node: if
there were bows everywhere, one node would do all the work."""
ARENA_OF_HOME = {between[0]: arena for arena, between in ARENAS.items()}

BOTS, CHESTS = 8, 2
"""In each arena."""
FIGURES_MAX = 6
"""Visitors' figures in each arena: when one more enters, the one that did nothing for the longest is removed."""
FIGURE_ROOM = 22
"""How far from the arena's middle a figure may walk."""

REACH, STRIDE, ELBOW = 5, 3, 2
"""How far a bot can reach and step, and how near it lets others come."""
HEALTH, LOOT, HOARD = 4, 10, 50
RANGE = 18
"""How far a figure shoots, also into the other region."""
SAFE, ACTIVE = 400, 160
"""Events of its arena in which a figure that has entered cannot be hit, unless it hits (about 5 s), and in which bots
hit one that has done something (about 2 s). A world has no clock."""
GONE_MAX = 32
"""Figures that have left and are remembered: who comes back has what it had."""


class Deed(TypedDict, total=False):
    """An event, as it is published. ``to``: where a bot steps; ``what``: whom it hits, or what it grabs.

    Of a visitor's figure: ``at``: where it is; ``arena``, ``title``, ``colour``: where and how it enters.
    """

    do: str
    bot: str
    to: list[int]
    what: str
    at: list[int]
    arena: str
    title: str
    colour: int


@dataclass(slots=True)
class Bot:
    """Someone who fights in one arena; ``falls``: how often it was felled."""

    name: str
    arena: str
    x: int
    y: int
    health: int = HEALTH
    loot: int = 0
    falls: int = 0


@dataclass(slots=True)
class Figure(Bot):
    """A visitor's; it has no health once it is removed."""

    title: str = ""
    colour: int = 0
    safe: int = 0
    active: int = 0
    """What is left of `SAFE` and `ACTIVE`."""

    @property
    def is_spared(self) -> bool:
        """Whether bots leave it alone."""
        return self.safe > 0 or self.active == 0


@dataclass(slots=True)
class Chest:
    """What they fight over: whoever opens it has its loot, and the next one stands elsewhere. ``owner``: the last."""

    name: str
    arena: str
    x: int
    y: int
    opened: int = 0
    owner: str = ""


Thing = Bot | Chest


@dataclass(frozen=True, slots=True)
class Shot:
    """The ``number``-th shot in an arena, and whom it hit: the figure itself if none was in range."""

    number: int
    by: str
    hit: str
    begin: tuple[int, int]
    end: tuple[int, int]


class World:
    """The arenas that lie between the regions that a game server watches, after the events that it was told."""

    def __init__(self, regions: frozenset[str]) -> None:
        self.arenas = tuple(arena for arena, between in ARENAS.items() if regions.issuperset(between))
        self.things: dict[str, Thing] = {}
        self._gone: dict[str, Figure] = {}
        self.shots: dict[str, Shot] = {}
        """Arena → the last shot there."""
        for arena in self.arenas:
            for number in range(BOTS):
                name = f"{arena}-bot-{number + 1}"
                self.things[name] = Bot(name, arena, *_home(arena, number))
            for number in range(CHESTS):
                name = f"{arena}-chest-{number + 1}"
                self.things[name] = Chest(name, arena, *_place(arena, number))

    def apply(self, deed: Deed) -> list[Thing]:
        """Let an event happen; returns the things that it is about, whether or not it changed them.

        Nothing, when it is about an arena that is not computed here. Who is told the same events in the same order has
        the same world.
        """
        touched = self._enter(deed) if deed["do"] == "enter" else self._act(deed)
        for figure in self._figures(touched[0].arena) if touched else ():
            figure.active = max(0, figure.active - 1)
            if figure.safe:
                figure.safe -= 1
                if figure.safe == 0 and figure not in touched:
                    touched.append(figure)
        return touched

    def _act(self, deed: Deed) -> list[Thing]:
        bot = self.things.get(deed["bot"])
        if not isinstance(bot, Bot):
            return []
        if isinstance(bot, Figure):
            return self._apply_to_figure(bot, deed)
        if deed["do"] == "step":
            x, y = deed["to"]
            self._step(bot, bot.x + _at_most(STRIDE, x - bot.x), bot.y + _at_most(STRIDE, y - bot.y))
            return [bot]
        other = self.things.get(deed["what"])
        if other is None:
            return [bot]  # a figure that has left
        if not near(bot, other):
            pass  # too late: it, or the bot, is elsewhere by now
        elif isinstance(other, Chest):
            _open(bot, other)
        elif can_be_hit(other):
            _hit(bot, other)
        return [bot, other]

    def _step(self, bot: Bot, x: int, y: int) -> None:
        """Bots do not stand on each other: who comes second stays where it is."""
        for other in self.bots():
            if other is not bot and other.arena == bot.arena and max(abs(other.x - x), abs(other.y - y)) < ELBOW:
                return
        bot.x, bot.y = x, y

    def _enter(self, deed: Deed) -> list[Thing]:
        arena, name = deed["arena"], deed["bot"]
        if arena not in self.arenas:
            return []
        known = self.things.get(name)
        if isinstance(known, Figure):
            known.title, known.colour = deed["title"], deed["colour"]
            return [known]
        figures = self._figures(arena)
        touched = [self._remove(figures[0])] if len(figures) == FIGURES_MAX else []
        figure = self._gone.pop(name, None) or Figure(name, arena, *_around(arena, _lot(name), 6))
        figure.health, figure.title, figure.colour = HEALTH, deed["title"], deed["colour"]
        figure.safe, figure.active = SAFE, 0
        self.things[name] = figure
        return [*touched, figure]

    def _apply_to_figure(self, figure: Figure, deed: Deed) -> list[Thing]:
        self.things[figure.name] = self.things.pop(figure.name)  # the first of them did nothing for the longest
        if deed["do"] == "leave":
            return [self._remove(figure)]
        figure.active = ACTIVE
        (x, y), (at_x, at_y) = _middle(figure.arena), deed["at"]
        figure.x, figure.y = x + _at_most(FIGURE_ROOM, at_x - x), y + _at_most(FIGURE_ROOM, at_y - y)
        if deed["do"] == "stand":
            return [figure]
        if deed["do"] == "take":
            figure.loot += HOARD
            return [figure]
        if deed["do"] == "shoot":
            return self._shoot(figure)
        around = [thing for thing in self.in_arena(figure.arena) if thing is not figure and near(figure, thing)]
        around = [thing for thing in around if can_be_hit(thing)]
        if not around:
            return [figure]
        other = min(around, key=lambda thing: (isinstance(thing, Bot), _apart(figure, thing), thing.name))
        if isinstance(other, Chest):
            _open(figure, other)
        else:
            _hit(figure, other)
        return [figure, other]

    def _shoot(self, figure: Figure) -> list[Thing]:
        rivals = [bot for bot in self.bots() if bot.arena == figure.arena and bot is not figure and can_be_hit(bot)]
        rival = min(rivals, key=lambda bot: (_apart(figure, bot), bot.name))
        other = rival if _apart(figure, rival) <= RANGE else figure
        before = self.shots.get(figure.arena)
        ends = (figure.x, figure.y), (other.x, other.y)
        self.shots[figure.arena] = Shot(before.number + 1 if before else 1, figure.name, other.name, *ends)
        if other is figure:
            return [figure]
        _hit(figure, other)
        return [figure, other]

    def _remove(self, figure: Figure) -> Figure:
        del self.things[figure.name]
        figure.health = 0
        self._gone[figure.name] = figure
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        return figure

    def bots(self) -> list[Bot]:
        """Return all bots."""
        return [thing for thing in self.things.values() if isinstance(thing, Bot)]

    def _figures(self, arena: str) -> list[Figure]:
        return [thing for thing in self.in_arena(arena) if isinstance(thing, Figure)]

    def in_arena(self, arena: str) -> list[Thing]:
        """Return all that is in an arena."""
        return [thing for thing in self.things.values() if thing.arena == arena]


def near(one: Thing, other: Thing) -> bool:
    """Return whether one can reach the other."""
    return _apart(one, other) <= REACH


def can_be_hit(thing: Thing) -> bool:
    """Return whether a thing is not a figure that has just entered."""
    return not (isinstance(thing, Figure) and thing.safe)


def _apart(one: Thing, other: Thing) -> int:
    return max(abs(one.x - other.x), abs(one.y - other.y))


def region_of(bot: Bot) -> str:
    """Return the region in which a bot speaks: of its arena's two, that whose middle is nearer."""

    def distance(region: str) -> int:
        x, y = REGIONS[region]
        return (bot.x - x) ** 2 + (bot.y - y) ** 2

    return min(ARENAS[bot.arena], key=distance)


def state(thing: Thing) -> tuple[Any, ...]:
    """Return all that is to be the same wherever a thing is computed."""
    if isinstance(thing, Figure):
        return thing.x, thing.y, thing.health, thing.loot, thing.falls, thing.title, thing.colour, thing.safe > 0
    if isinstance(thing, Bot):
        return thing.x, thing.y, thing.health, thing.loot, thing.falls
    return thing.x, thing.y, thing.opened, thing.owner


def _open(bot: Bot, chest: Chest) -> None:
    bot.loot += LOOT
    chest.opened += 1
    chest.owner = bot.name
    chest.x, chest.y = _place(chest.arena, int(chest.name[-1]) - 1 + chest.opened)


def _hit(bot: Bot, other: Bot) -> None:
    """Hurt, and push back; who falls leaves half its loot and begins again."""
    if isinstance(bot, Figure):
        bot.safe = 0
    other.health -= 1
    other.x += _at_most(1, other.x - bot.x)
    other.y += _at_most(1, other.y - bot.y)
    if other.health == 0:
        taken = other.loot // 2
        bot.loot += taken
        other.loot -= taken
        other.falls += 1
        other.health = HEALTH
        if isinstance(other, Figure):
            other.x, other.y = _around(other.arena, _lot(other.name) + other.falls, 6)
        else:
            other.x, other.y = _home(other.arena, int(other.name[-1]) - 1 + other.falls)


def _lot(name: str) -> int:
    """Return a number by which figures begin at different places, the same wherever it is computed."""
    return sum(name.encode())


def _home(arena: str, number: int) -> tuple[int, int]:
    """Where bots begin, and begin again: around the arena's middle."""
    return _around(arena, number * 5, 15)


def _place(arena: str, number: int) -> tuple[int, int]:
    return _around(arena, number * 3, 9)


def _at_most(limit: int, way: int) -> int:
    return max(-limit, min(limit, way))


_RING = ((4, 0), (3, 3), (0, 4), (-3, 3), (-4, 0), (-3, -3), (0, -4), (3, -3))


def _around(arena: str, number: int, distance: int) -> tuple[int, int]:
    x, y = _middle(arena)
    across, along = _RING[number % len(_RING)]
    return x + across * distance // 4, y + along * distance // 4


def _middle(arena: str) -> tuple[int, int]:
    (x, y), (other_x, other_y) = (REGIONS[region] for region in ARENAS[arena])
    return (x + other_x) // 2, (y + other_y) // 2
