"""A seeded world in which the core's state machines run as they are, under every fault that a network can have."""
