"""Embedded servers: private redis-servers that end with the process that started them."""
