"""From rewards to advantages: groups, baselines, and signs that a group teaches nothing."""
