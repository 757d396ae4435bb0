"""Matches to test with, recorded or made up, and the game servers that host them."""
