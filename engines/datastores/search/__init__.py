"""Searching datastores: suffix arrays, nearest neighbours, tries."""
