"""One file a drafting method."""
