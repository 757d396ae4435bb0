"""What the installed wheel must do where nothing but what it requires itself is installed: no extra.

usage: python wheel_bare.py
"""

import asyncio
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import gamecast
import gamecast.blocking

REQUIRED = {"gamecast", "hiredis", "orjson", "redis"}
INSTALLERS = {"pip", "setuptools"}


def refused(url: str) -> str:
    try:
        asyncio.run(gamecast.connect(url).open())
    except gamecast.ExtraMissing as error:
        return str(error)
    raise AssertionError(f"{url} was opened without a planner")


async def served() -> object:
    """Publish and subscribe on one node, which takes no planner."""
    async with gamecast.connect("memory://bare", name="bare") as client:
        await client.subscribe("forest", "river")
        await client.publish("forest", "door opens")
        event = await anext(client)
        return getattr(event, "payload", event)


def main() -> None:
    installed = {distribution.name for distribution in distributions()}
    assert installed - INSTALLERS == REQUIRED, f"installed: {sorted(installed)}"
    gamecast.connect("redis://127.0.0.1:1", name="bare")
    assert asyncio.run(served()) == "door opens"
    assert "gamecast[planner]" in refused("memory://bare?nodes=2")
    assert "gamecast[planner]" in refused("embedded://?nodes=2")
    command = Path(sys.executable).with_name("gamecast")
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    assert told.returncode == 2, told
    (line,) = told.stderr.splitlines()
    assert line == "gamecast: this command needs click: pip install 'gamecast[cli]'", line


if __name__ == "__main__":
    main()
