"""Drafting with a smaller model."""
