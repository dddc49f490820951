"""Other libraries: the only door to transformers, and which versions were tested. What is used of a library that it
does not document is listed in tests/known_exceptions.toml, with what was checked."""
