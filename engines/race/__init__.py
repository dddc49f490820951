"""Engines side by side: lanes on the same prompts, run one after another in a fair order, measured and compared.

``lanes.py`` what is asked; ``runner.py`` the race, as events; ``peers.py`` who runs the lanes; ``token_times.py`` the
clock; ``race_events.py`` what it says about itself; ``result.py`` the numbers, a fold over these events;
``interval.py`` medians and intervals; ``output_compare.py`` whether all lanes write the same text; ``system_load.py``
what else the machine does meanwhile. Importing any of it costs no torch.
"""
