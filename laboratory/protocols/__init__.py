"""The classic protocols in drawn worlds and in scripts, and logs of executions, whoever wrote them."""
