"""Draft & Verify's offline search: which sublayers to leave out when drafting, by the measured speed.

optuna's tree-structured Parzen estimator proposes sets; a trial writes the answers to a few prompts with that set and
without a draft, in turns, and its value is the ratio of their tokens/s. Each proposal depends on the seed and the
trials before it alone, and the file is written after every trial, so an interrupted search goes on trial for trial.
The best of many noisy trials is partly luck: at the end the best three are measured three times more, and the median
of those is reported.
"""
