"""Is an answer the target's own? Every token is derived again by a forward that shares nothing with decoding.

An audit shares with decoding the weights and the law's definition (temperature, filters, noise). The plain module
reads prompt and answer once, over no cache of ours, and every choice is made anew. What counts as rounding is measured
on samples of the same text that are read again in another shape, a few rows at a time; docs/glossary.md has the rule.
The target's cache is not touched, so the next turn reuses it.
"""
