"""A benchmark: our engines and ``transformers.generate`` with the same method, in one race over a suite of tasks.

``suite.py`` what is asked; ``hf_generate.py`` generate as a lane; ``generate_runs.py`` its runs; ``entrants.py`` what
takes part, and on what machine; ``bench_results.py`` the numbers, by task; ``published.py`` what papers report of other
models and machines. Importing any of it loads no torch, ``generate_runs.py`` excepted.
"""
