"""ADMG: self-speculation by cosine similarity."""
