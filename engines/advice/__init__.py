"""The adviser: which method, with which settings, for this model and these prompts.

``trial_lanes.py`` the settings that are tried; ``halving.py`` what will be done: how time is divided and who goes on;
``adviser.py`` the rounds, each a race; ``advice_events.py`` what it says beside their events; ``findings.py`` their
numbers; ``pass_times.py`` the noise of runs; ``paired_ratio.py`` a speed-up with its noise; ``what_if.py`` the same on
another machine; ``server_acceptance.py`` what a server accepts; ``leakage.py`` answers that lie in a datastore.
Importing any of it loads no torch.
"""
