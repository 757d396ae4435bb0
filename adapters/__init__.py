"""The carriers of a network: Redis, memory, and the Redis server that gamecast starts itself."""
