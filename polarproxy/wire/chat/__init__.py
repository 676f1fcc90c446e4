"""OpenAI Chat Completions, the dialect that engines speak: every other dialect is translated to it and back."""
