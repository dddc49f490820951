"""Datastores: folders of memory-mapped arrays that drafts are retrieved from; storing, searching, building them.

A datastore is raw arrays and ``manifest.json``, which names each with dtype, shape, size and SHA-256 and carries a
checksum of itself. Opening compares sizes, ``verify`` checksums. Damage within the right sizes can make drafts worse
and nothing else: lookups stay in bounds, and the target checks every token. Nothing is unpickled, and a name is never a
path. Searching needs no torch.
"""
