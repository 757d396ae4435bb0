"""The classic ordering protocols, and the classes of executions: pure, for comparison and for a reasoned choice."""
