"""A datastore on disk: manifest, names, documents, memory-mapped arrays."""
