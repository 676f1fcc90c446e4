"""Exact prompts: recorded tokens, then what the engine's chat template puts after them, with every step proved."""
