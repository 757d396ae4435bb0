"""Lumezanu 2006 §4 run again: its experiment, its figures, and what gamecast's own placement comes to in it."""
