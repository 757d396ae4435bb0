"""The Spark jobs that judge and measure sessions."""
