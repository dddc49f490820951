"""Lessons: text beside a run, page by page, with a question at the end that the run answers. No torch, no terminal."""
