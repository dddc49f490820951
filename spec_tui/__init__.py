"""The terminal: a chat that shows speculative decoding at work, and its headless twin. Draws what ``engines`` says."""
