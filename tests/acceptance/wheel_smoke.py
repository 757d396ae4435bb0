"""What the installed wheel must do in a folder whose neighbours bear the flat tree's names.

usage: python wheel_smoke.py SITE [laboratory], where SITE is the directory that the wheel was installed under;
``laboratory``: gamecast-lab is installed, too.
"""

import asyncio
import sys
from pathlib import Path

import gamecast
import gamecast.analytics
import gamecast.gateway
import gamecast.loadtest

FLAT_NAMES = {
    *("adapters", "analytics", "classic", "cli", "demo", "gateway", "laboratory", "launcher", "loadtest", "placement"),
    "sequencing",
}


async def receive_what_is_published() -> None:
    async with asyncio.timeout(30), gamecast.connect("memory://smoke", name="smoke") as client:
        await client.subscribe("forest")
        receipt = await client.publish("forest", {"type": "spell"})
        async for event in client:
            assert isinstance(event, gamecast.Event), event
            received = (event.region, event.sender, event.payload, event.epoch, event.sequence)
            assert received == ("forest", "smoke", {"type": "spell"}, receipt.epoch, receipt.sequence), received
            return
    raise AssertionError("the connection closed before the event came")


def use_laboratory() -> None:
    import gamecast.classic

    process = gamecast.classic.connect("memory://smoke", name="a", protocol="isis", processes=["a", "b"])
    assert isinstance(process, gamecast.classic.ProtocolClient)


def main() -> None:
    package = Path(gamecast.__file__).resolve().parent
    assert package.is_relative_to(Path(sys.argv[1]).resolve()), f"gamecast came from {package}"
    assert (package / "py.typed").is_file(), "py.typed is missing: type checkers would ignore the annotations"
    assert gamecast.analytics.TABLE_OF["deliveries"] in gamecast.analytics.TABLES
    assert "GameServerUser" in dir(gamecast.loadtest)
    assert "ClientAccess" in dir(gamecast.gateway)
    if len(sys.argv) > 2:
        use_laboratory()
    heavy = {"gevent", "locust", "pyarrow", "pyspark"} & sys.modules.keys()
    assert not heavy, f"imported before it is needed: {sorted(heavy)}"
    asyncio.run(receive_what_is_published())
    flat = FLAT_NAMES & {name.partition(".")[0] for name in sys.modules}
    assert not flat, f"imported under their flat names: {sorted(flat)}"


if __name__ == "__main__":
    main()
