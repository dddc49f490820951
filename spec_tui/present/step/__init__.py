"""A run phase by phase: what there is to show, and why it happened. Knows neither torch nor a terminal."""
