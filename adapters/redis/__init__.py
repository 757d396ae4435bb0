"""A network in Redis: nodes, control, relays, users, and what can be seen of them from outside."""
