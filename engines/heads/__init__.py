"""Learned draft heads: reading their checkpoints, what they compute, their keys and values beside the target's, and how
they are trained and checked. Importing this package loads no torch."""
