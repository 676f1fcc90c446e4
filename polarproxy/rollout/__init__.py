"""Running harnesses on tasks: local processes, tasks with verifiers, and an engine that needs no server."""
