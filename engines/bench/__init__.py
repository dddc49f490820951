"""A benchmark: our engines and ``transformers.generate`` with the same method, in one race over a suite of tasks.

``suite.py`` what is asked; ``peers.py`` generate as a lane, ``generate.py`` its runs; ``contest.py`` who runs on what,
and ``clock.py`` its clock; ``standings.py`` the numbers, by task; ``published.py`` what the papers say of other models
and machines. Importing any of it costs no torch, ``generate.py`` excepted.
"""
