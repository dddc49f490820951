"""Where models come from: local folders, the hub's cache, the hub. Nothing here loads weights or needs torch."""
