"""Servers of our own: private redis-servers that end with the process that wanted them."""
