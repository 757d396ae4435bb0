"""Sessions as stored on disk: their schema, how they are read, and the clock offsets in them."""
