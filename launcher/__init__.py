"""How a process of ours starts and ends: Ctrl-C from its first line on, and one meaning for each exit status."""
