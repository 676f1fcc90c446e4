"""Leaving the store: rows as files, each with the report of what is in it and what is not."""
