"""The model as the loop sees it: a KV buffer with one length, tree forwards, loading, self-test.

**Rows.** The root and the nodes are written after the committed rows and are pending. ``keep([0, 2, 5])`` moves the
rows of the accepted path into place and forgets the rest. ``rewind(context)`` keeps the longest prefix that the buffer
shares with a context, so a second turn, another engine, or a draft model after a rejection feed only what is new.

**Families.** Nothing depends on a family's name. The configuration says which kinds of attention layers there are, and
``masks`` builds an additive mask for each kind, by position. When a model is first loaded the self-test compares a
small tree with the same model in a plain forward without a cache, with windows made small so that both are compared
across their edges. A model that fails is tried on chains; one that fails those too is refused with the reason, as is
one with a running state. That it passed is kept (``selftest``).

**Forwards.** ``GenericForward`` calls the module of transformers. ``LeanForward`` computes Llama, Mistral, Qwen2,
Qwen3, SmolLM3, Gemma 3 and Granite itself, over fused layers that hold the only copy of the weights; it must pass the
self-test against the module. A sublayer that drafts leave out is not run; what depends on it (shared keys) stays.

**Threads and layout** are measured at load (``tuning``), unless the user gives them.
"""
