"""Rollouts as a service: tasks are submitted, run in stages, judged, and survive a restart."""
