"""Records of sends and receives at processes, and the classification of executions by them."""
