"""Engines side by side: lanes on the same prompts, run one after another in a fair order, measured and compared.

Side by side they would share cores and caches. Each lane is warmed up, and before every run the KV caches and what
budgets learned are forgotten, so a lane is what ``run`` is in a fresh process. Every second turn goes backwards through
the order of the one before, and each two turns begin one lane further on, so steady drift favours nobody. Nothing is
said while a lane runs. Speed-ups are ratios within a repeat, intervals are order statistics, and where two texts
differ both are audited. Importing any of it loads no torch.
"""
