"""DReSD: retrieval by hidden state."""
