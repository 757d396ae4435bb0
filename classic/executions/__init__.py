"""What kind of execution was that? Records of sends and receives, and what can be said of them."""
