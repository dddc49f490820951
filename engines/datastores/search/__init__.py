"""Searching datastores: suffix arrays, nearest neighbours, tries.

**Exact.** Documents lie one after another, each followed by a number that is no token, so nothing matches across
documents. Tokens are big-endian, so ``bisect`` compares slices of the mapped file. A suffix occurs only where shorter
ones do, so the longest match is found by bisection too. Rows in suffix-array order are sorted, which makes the trie's
nodes runs of rows.

**Dense.** A key is a hidden state after z-norm, PCA and scaling to length 1, with the position of the token after it.
An index (ScaNN, else faiss) only proposes candidates; those that go on with the emitted token are scored and ranked by
the keys themselves. Few keys are searched exactly. An index is opened after its checksums and has to find its own
keys; else every key is searched, with a remark.
"""
