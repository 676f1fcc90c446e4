"""Each trainer's own words: one module each, with one table and the way back."""
