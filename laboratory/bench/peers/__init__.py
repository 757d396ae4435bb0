"""The peers of a trial: gamecast, and what a user would pick instead."""
