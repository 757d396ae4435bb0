"""The capacity of a network: the highest rate at which delays and hold times stay within bounds."""
