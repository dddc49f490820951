"""The papers' tables, run again: an entry for each, and what is measured here put beside what was published.

``entry.py`` what an entry is, and reading one; ``entries`` those that ship; ``questions.py`` what is asked;
``needs.py`` the datastores that an entry needs; ``measures.py`` the columns; ``reproduction.py`` the cells, ours and
theirs. An entry runs as a benchmark does (``engines.bench``). Importing what an entry is loads no torch.
"""
