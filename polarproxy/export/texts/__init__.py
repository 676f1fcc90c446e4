"""Formats made of what was said, not of tokens: conversations, preferences, trajectories."""
