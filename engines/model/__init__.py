"""The model as the loop sees it: a KV buffer with one length, tree forwards, loading, self-test."""
