"""The clients' API formats, as pure functions over bytes and values."""
