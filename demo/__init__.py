"""A match replayed through gamecast and through plain Pub/Sub, and what all servers saw."""
