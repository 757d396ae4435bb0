"""What a bot wants to do next, from the world as its game server sees it. This may be random: it is what is published
that counts, and everybody is told that."""

from __future__ import annotations

from random import Random

from .world import Bot, Chest, Deed, Figure, World, near

DARES = 0.5
"""How likely a bot hits whom it can reach, rather than go for the loot."""


def decide(world: World, bot: Bot, random: Random) -> Deed:
    """Return the bot's next deed: grab what it can reach, or hit somebody, or go to where the loot is."""
    around = world.in_arena(bot.arena)
    chests = [thing for thing in around if isinstance(thing, Chest)]
    if reachable := [chest for chest in chests if near(bot, chest)]:
        return {"do": "grab", "bot": bot.name, "what": random.choice(reachable).name}
    rivals = [thing for thing in around if isinstance(thing, Bot) and thing is not bot and near(bot, thing)]
    rivals = [rival for rival in rivals if not (isinstance(rival, Figure) and rival.is_spared)]
    if rivals and random.random() < DARES:
        return {"do": "hit", "bot": bot.name, "what": random.choice(rivals).name}
    nearest = min(chests, key=lambda chest: max(abs(chest.x - bot.x), abs(chest.y - bot.y)))
    return {"do": "step", "bot": bot.name, "to": [nearest.x + random.randint(-3, 3), nearest.y + random.randint(-3, 3)]}
