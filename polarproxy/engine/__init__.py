"""Inference engines: what is asked of each, and where its replies carry token ids and log-probabilities."""
