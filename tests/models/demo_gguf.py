"""Write a tied-embedding Qwen3 and its byte-level BPE into one GGUF file, without llama.cpp's converter."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Vocabulary:
    """Token texts in id order (byte-level alphabet), merges as "left right", and which ids are markup."""

    tokens: list[str]
    merges: list[str]
    control: frozenset[int]
    """Never part of the text: turn markers."""
    plain_markup: frozenset[int]
    """Never split, but part of the text, so that the engine's tool parser sees it."""
    end: int


def _token_types(vocabulary: Vocabulary) -> list[int]:
    kinds = []
    for index in range(len(vocabulary.tokens)):
        if index in vocabulary.control:
            kinds.append(gguf.TokenType.CONTROL)
        elif index in vocabulary.plain_markup:
            kinds.append(gguf.TokenType.USER_DEFINED)
        else:
            kinds.append(gguf.TokenType.NORMAL)
    return kinds


def _tensor_name(name: str) -> str:
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def write(path: Path, model: Any, vocabulary: Vocabulary, chat_template: str) -> None:
    """`model` is a transformers Qwen3ForCausalLM; matrices are stored as float16, norms as float32."""
    config = model.config
    out = gguf.GGUFWriter(path, "qwen3")
    out.add_name("polarproxy calculator")
    out.add_description("A tiny policy that solves word tasks with a calculator, sometimes wrongly.")
    out.add_license("Apache-2.0")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(vocabulary.tokens)
    out.add_token_types(_token_types(vocabulary))
    out.add_token_merges(vocabulary.merges)
    out.add_eos_token_id(vocabulary.end)
    out.add_pad_token_id(vocabulary.end)
    out.add_add_bos_token(False)
    out.add_chat_template(chat_template)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue  # tied to the embeddings
        values = weight.detach().float().numpy()
        out.add_tensor(_tensor_name(name), values.astype(np.float32 if values.ndim == 1 else np.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
