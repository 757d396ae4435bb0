"""The classic protocols and ours on one topology and one workload, measured alike."""
