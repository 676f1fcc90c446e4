"""Rollouts for a trainer that hands them out over a queue."""
