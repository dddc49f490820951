"""Lessons: text beside a run, page by page, with a question at the end that the run answers. No torch, no terminal.

A lesson is a file of TOML. A page names a run, a phase, and a round by what is in it ("most accepted"), so it still
points at the right thing when traces are recorded again. Numbers are places in the text that facts fill, all computed
from events; a test refuses a typed digit.
"""
