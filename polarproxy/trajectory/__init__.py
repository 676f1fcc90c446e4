"""Calls in, branches out: which call continues which, what is trained, and what is left out and why."""
