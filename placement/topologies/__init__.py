"""Topologies from files: latency matrices, node and edge tables, GraphML and GML."""
