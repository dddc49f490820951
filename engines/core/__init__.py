"""The algorithm: draft trees, laws, sampling, and the one loop."""
