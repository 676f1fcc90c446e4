"""What an engine is told besides what every dialect can say. Source: `ChatCompletionRequest` of vLLM 0.32."""

from __future__ import annotations

ENGINE_FIELDS = frozenset(
    (
        "add_generation_prompt",
        "add_special_tokens",
        "allowed_token_ids",
        "bad_words",
        "cache_salt",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "echo",
        "ec_transfer_params",
        "ignore_eos",
        "include_reasoning",
        "include_stop_str_in_output",
        "kv_transfer_params",
        "length_penalty",
        "logit_bias",
        "media_io_kwargs",
        "min_p",
        "min_tokens",
        "mm_processor_kwargs",
        "priority",
        "repetition_detection",
        "repetition_penalty",
        "request_id",
        "response_format",
        "session_id",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "stream_interval",
        "stream_options",
        "structured_outputs",
        "truncate_prompt_tokens",
        "truncation_side",
        "use_beam_search",
        "vllm_xargs",
        "watermarking",
    )
)
"""Members of vLLM's request that have no place in a `Request`: sent on when a client of any dialect gives them.

Those that ask for ids or log-probabilities are not among them: no other dialect's reply could carry what they ask for,
and half of such a question (Responses' `top_logprobs`) is refused.
"""
