"""``gamecast.gateway`` in the source tree, where the folder stands beside this one; the wheel has the folder here."""

from typing import TYPE_CHECKING, Any

import gateway as _folder

if TYPE_CHECKING:
    from gateway import *  # noqa: F403
else:
    __all__ = _folder.__all__

    def __getattr__(name: str) -> Any:
        return getattr(_folder, name)

    def __dir__() -> list[str]:
        return dir(_folder)
