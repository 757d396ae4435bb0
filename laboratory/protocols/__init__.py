"""The classic protocols in drawn worlds and in scripts, and logs of executions from any program."""
