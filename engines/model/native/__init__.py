"""Native code of our own for the CPU: products with quantised weights, and the layers of Llama-like models.

With a few rows, a forward pass is limited by the memory bandwidth of reading the weights, if nothing else gets in the
way. torch's operations read only float32, or round to bfloat16, and launching thousands of them takes longer than their
arithmetic. Here a forward pass is one call. Weights stay in memory as they are in the file, float32 or quantised, in
panels of interleaved rows (``quants.h``). They are unpacked on the fly to the float32 numbers of the unpacked weight
(``products.h``), or activations are quantised to 8 bits and the products are integers (``integer_products.h``).

The order of every sum is independent of the number of rows, threads and branches. So a row's logits are the same to the
last bit with any draft and in any tree, and every engine has the logits that the target has alone.

``library`` takes the code of the package that is compiled for processors like this one, or compiles it with the
machine's C++ compiler, once, in seconds, and keeps it in the user's cache.
``native_linear`` has the layers for any model, ``native_forward`` the whole forward pass of Llama-like models, and
``lookups.cpp`` the lookups of ``engines.datastores.search``.
"""
