"""REST: retrieval by exact match."""
