"""OpenAI (legacy) Completions: text or token ids in, text out. It is not translated: the engine speaks it itself."""
