"""Where a harness or a test runs: one protocol, and the ways to keep it (a process group, bubblewrap, containers)."""
