"""The choices of ``--quantize``: what becomes of the weights of linear layers when a model is loaded on the CPU."""

AUTO, NONE, INT8, INT4 = "auto", "none", "int8", "int4"
CHOICES = (AUTO, NONE, INT8, INT4)
