"""Sections of tools/bench.py."""
