"""Ways to place sequencing nodes that the paper compares with, and the networks that it places them in."""
