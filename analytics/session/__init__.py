"""Sessions as they lie on disk: their schema, how they are read, and how far the clocks in them are apart."""
