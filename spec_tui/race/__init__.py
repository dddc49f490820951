"""A race as a screen follows it: what has come in, and all lanes on one clock afterwards. Knows no terminal."""
