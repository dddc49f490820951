"""The terminal: a chat that shows speculative decoding at work, and its headless twin. Draws what ``engines`` says."""

PRIVACY = "No text leaves this machine, except to a server that you name; there is no telemetry."
