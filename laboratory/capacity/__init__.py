"""How much a network carries: the highest rate at which delays and hold times stay within bounds."""
