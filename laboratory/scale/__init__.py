"""How a network grows with its world: grid worlds with up to a million walking players, planned and reckoned."""
