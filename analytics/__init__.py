"""Spark jobs that judge recorded sessions: latency stretch and order."""
