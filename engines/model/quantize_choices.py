"""The choices of ``--quantize``: what becomes of the weights of linear layers when a model is loaded on the CPU.

``auto``: they are multiplied as a GGUF file stores them where that loses nothing (``native``), else unpacked.
``stored``: as a GGUF file stores them, though products may be rounded to bfloat16.
``int8``, ``int4``: quantised, of any model.
``none``: unpacked.
"""

AUTO, STORED, INT8, INT4, NONE = "auto", "stored", "int8", "int4", "none"
CHOICES = (AUTO, STORED, INT8, INT4, NONE)
