"""What gamecast runs on: Redis, memory, and the server that it starts itself."""
