"""One connection: publishing, following the network, history, and frames that are held for order."""
