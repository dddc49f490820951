"""The drafting methods, one room each, and the parts that they share."""
