"""Evaluators: what a rollout was worth, by looking at what it left behind."""
