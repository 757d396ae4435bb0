"""Faults, as a tool: a network of real processes, a seeded schedule of what befalls them, and the judgement of it."""
