"""What vLLM's `/v1/chat/completions/render` answers, made here from real tokenizers and real chat templates."""
