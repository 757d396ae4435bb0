"""From a file of memberships to a plan that people and programs can read."""
