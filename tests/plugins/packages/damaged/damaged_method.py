"""A method whose module cannot be imported."""

raise RuntimeError("its weights are gone\nand so is this line")
