"""A channel layer for Django Channels, with one order across groups; see docs/drop-ins.md."""

from sequencing.extras import needed_by

with needed_by("gamecast.channels"):
    from gamecast.channels.layer import GamecastChannelLayer

__all__ = ["GamecastChannelLayer"]
