"""The choices of ``--quantize``: what becomes of the weights of linear layers when a model is loaded on the CPU. Native
code multiplies them; without it they are unpacked.

``auto``: they stay as a GGUF file stores them; of a large draft model they become 3 bits.
``stored``: they stay as a GGUF file stores them.
``int8``, ``int4``: quantised, of any model.
``none``: unpacked.

The choices of ``--arithmetic``: how native code multiplies weights that are whole numbers.

``float32``: as the float32 numbers that they stand for.
``int8``: inputs of products are rounded to 8 bits, as llama.cpp does it, and sums are those of whole numbers.
``auto``: int8 for what a GGUF file stores so, float32 for the rest.
"""

AUTO, STORED, INT8, INT4, NONE = "auto", "stored", "int8", "int4", "none"
FLOAT32 = "float32"
CHOICES = (AUTO, STORED, INT8, INT4, NONE)
ARITHMETICS = (AUTO, FLOAT32, INT8)
