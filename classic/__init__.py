"""The classic ordering protocols, and the classes of executions: pure, to compare with and to choose by evidence."""
