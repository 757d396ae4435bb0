"""A wide-area network on one machine: real processes and servers, and between them the delays of a matrix."""
