"""Anthropic Messages: requests, replies, streams, token counts, list of models and errors of this dialect."""
