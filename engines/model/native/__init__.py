"""Native code of our own for the CPU: products of weights as they are stored, and the layers of Llama-like models.

At a few rows a token costs what reading its weights costs, if nothing else gets in the way: torch's operations read
float32 only, or round to bfloat16, and starting some thousand of them takes longer than what they compute. Here a
forward is one call. Weights lie in memory in blocks as they are stored: float32, or integers of 4 or 8 bits with
their scales, which become the same float32 numbers in registers that an unpacked weight has (``products.h``).

No sum is made in another order for more rows, threads or branches. So a row comes out the same to the last bit however
it is fed: whatever is drafted, and in whichever tree, every engine has the logits that the target has alone.

``library`` takes the code of the package that is compiled for processors like this one, or compiles it with the
machine's C++ compiler, once, in seconds, and keeps it in the user's cache.
``linear`` has the layers for any model, ``forward`` the whole forward for Llama-like ones, ``lookups.cpp`` what
``engines.datastores.search`` asks.
"""
