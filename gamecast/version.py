"""Which gamecast this is: the build takes it from here, so that nobody has to look it up where it is installed."""

__version__ = "0.1.0"
