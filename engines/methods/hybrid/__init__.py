"""Several retrieval sources, the best-scoring one drafts."""
