"""Small worlds explored to all their ends: every order in which the machines can move."""
