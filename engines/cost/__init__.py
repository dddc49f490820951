"""What rounds cost and what they bring: t(n), budgets, the speed-up model.

``t(n)``, the time of a forward over n rows, is measured at load and kept in the user's cache by model, dtype, back end
and machine; two sizes are measured again at each load. With ``budget=auto`` a round drafts what gives the most expected
tokens a second. The chance of a node is the drafter's own probability as far as such ones came true, by depth; where
there is none, what copies of this source and matched length did so far; old rounds fade. The expected tokens of a round
are one plus the sum of its nodes' chances, its time is t(rows) plus the drafting. Where random draws decide the text, a
budget uses counts only and the first curve measured on the machine, so that a seed repeats its run.
"""
