"""A network in Redis: nodes, control, relays, users, and how it is surveyed from outside."""
