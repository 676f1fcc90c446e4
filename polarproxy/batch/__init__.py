"""Training rows and batches of them: samples, padding, packing."""
