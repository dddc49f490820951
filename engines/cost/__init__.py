"""What rounds cost and what they bring: t(n), budgets, the speed-up model."""
