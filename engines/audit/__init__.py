"""Is an answer the target's own? Every token derived again by a forward that shares nothing with decoding."""
