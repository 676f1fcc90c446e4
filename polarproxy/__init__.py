"""polarproxy: a transparent LLM API proxy that turns any agent harness into token-faithful training data."""

__version__ = "0.1.0"
