"""Put load on a running network, and check the deliveries of its subscribers.

Users import from here: ``gamecast.loadtest``. `GameServerUser` is loaded at its first use, because it imports locust,
which patches the process for gevent: import it in files that locust runs, not in a game server.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadtest.gameserver import GameServerUser as GameServerUser

_MODULE_OF = {"GameServerUser": "gameserver"}
"""Name → its module, below this folder."""

if not TYPE_CHECKING:  # type checkers know the name above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
