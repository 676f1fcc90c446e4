"""Exact prompts: a request that repeats a recorded conversation is sent with the recorded tokens of it."""
