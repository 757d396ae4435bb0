"""The gateway: access by WebSocket, HTTP and server-sent events for programs that do not embed the library.

Users import from here: ``gamecast.gateway``. What is named is loaded at its first use, because it needs the extra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sequencing.extras import needed_by

if TYPE_CHECKING:
    from gateway.access import ClientAccess as ClientAccess
    from gateway.local import extensions as extensions
    from gateway.local import local_gateway as local_gateway

_MODULE_OF = {"ClientAccess": "access", "extensions": "local", "local_gateway": "local"}
"""Name → its module, below this folder."""

if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with needed_by("gamecast.gateway"):
            return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
