"""Autoregressive decoding: nothing drafted, the baseline."""
