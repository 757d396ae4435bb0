"""The pure core: overlaps, atoms, the plan, the node's step, delivery, and the order checkers."""
