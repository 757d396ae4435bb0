"""Measurements beside the alternatives that a user would choose: trials, peers, figures and goals."""
