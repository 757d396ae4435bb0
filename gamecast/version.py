"""The version of gamecast. The build reads it from here, so no lookup is needed at run time."""

__version__ = "0.2.0"
