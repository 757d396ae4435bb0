"""Start and end of each gamecast process: Ctrl-C from the first line on, and one meaning for each exit status."""
