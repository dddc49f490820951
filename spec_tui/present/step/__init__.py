"""A run phase by phase: what there is to show, and why it happened. Needs neither torch nor a terminal.

A round is cut into phases and explained from its event alone, so a recorded run is stepped through like a live one.
A branch is a run whose prompt is the text up to the root of a round (``Request.continued``): positions stay as they
were, and with them noise and text. Its random draws come from a place of their own in the seed's sequence.
"""
