"""One connection: publishing, following the network, history, and what is held for order."""
