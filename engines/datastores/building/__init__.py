"""Building datastores from texts and from a model's own answers."""
