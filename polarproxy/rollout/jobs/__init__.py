"""Offline jobs: many tasks, harnesses and models, run to the end."""
