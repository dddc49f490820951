"""Recorded runs as documents: Markdown, a page, a picture, a recording of a terminal."""
