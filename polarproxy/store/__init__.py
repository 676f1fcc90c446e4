"""The durable record: tables, token codec, the writer that commits in groups, and the questions that can be asked."""
