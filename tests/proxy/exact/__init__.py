"""Exact prompts at the proxy, with the fake engine and its toy template."""
