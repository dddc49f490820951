"""Parts of drafters that several methods use."""
