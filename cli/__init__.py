"""The ``gamecast`` command: one module a subcommand."""
