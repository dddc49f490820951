"""Engines side by side: lanes on the same prompts, run one after another in a fair order, measured and compared.

``lanes.py`` what is asked; ``runner.py`` the race, as events; ``events.py`` what it says about itself; ``result.py``
the numbers, a fold over these events; ``estimate.py`` medians and intervals; ``texts.py`` do all lanes say the same;
``watch.py`` what else the machine does meanwhile. Importing any of it costs no torch.
"""
