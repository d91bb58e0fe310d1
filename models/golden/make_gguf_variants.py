#!/usr/bin/env python3
"""Adds models to gguf/: GPT-2, scaled rotary embeddings, and mixtures of experts, each with its logits by transformers.

Run once, by hand, as make_gguf.py (torch, transformers 5.24, gguf 0.19.0):
    python models/golden/make_gguf_variants.py
"""
import math

import gguf
import numpy
import torch
import transformers as t
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from make_gguf import OUT, SEED, SIZES, TOKENS, add_vocabulary, adjacent, finish, logits, named

# The first context length of models with scaled positions, which the tokens exceed.
ORIGINAL = 32
BASE = 5e4


def models():
    """Returns one model of each variant, by the name of its file."""
    half = dict(SIZES, head_dim=16)
    few = dict(num_experts_per_tok=2, experts_implementation="eager")
    yarn = dict(rope_type="yarn", rope_theta=BASE, factor=4.0, original_max_position_embeddings=ORIGINAL, beta_fast=4.0, beta_slow=1.0)
    llama3 = dict(rope_type="llama3", rope_theta=BASE, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=ORIGINAL)
    long = dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.1, 1.3, 1.6], long_factor=[1.2, 2.5, 4.0, 7.0],
                original_max_position_embeddings=ORIGINAL)
    sizes = dict(SIZES, intermediate_size=64)
    narrow = dict(moe_intermediate_size=32)
    gpt2 = dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
    return {
        "gpt2": t.GPT2LMHeadModel(t.GPT2Config(**gpt2)),
        "llama-yarn": t.LlamaForCausalLM(t.LlamaConfig(**SIZES, rope_parameters=yarn)),
        "llama-factors": t.LlamaForCausalLM(t.LlamaConfig(**SIZES, rope_parameters=llama3)),
        "phi3-long": t.Phi3ForCausalLM(t.Phi3Config(**SIZES, rope_parameters=long, original_max_position_embeddings=ORIGINAL)),
        "llama-experts": t.MixtralForCausalLM(t.MixtralConfig(**sizes, **few, num_local_experts=6, rope_parameters=dict(rope_type="default", rope_theta=BASE))),
        "qwen2moe": t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(**sizes, **few, **narrow, num_experts=6, shared_expert_intermediate_size=64)),
        "qwen3moe": t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(**dict(sizes, head_dim=16), **few, **narrow, num_experts=6, norm_topk_prob=True)),
        "gpt-oss": t.GptOssForCausalLM(t.GptOssConfig(
            **dict(sizes, head_dim=16), **few, num_local_experts=6, sliding_window=9,
            rope_parameters=dict(yarn, truncate=False))),
    }


# The formats of experts' weights.
PACKED = {
    "llama-experts": dict(ffn_gate_exps=Kind.Q8_0, ffn_up_exps=Kind.Q4_0, ffn_down_exps=Kind.Q4_1),
    "qwen3moe": dict.fromkeys(["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"], Kind.Q8_0),
    "gpt-oss": dict.fromkeys(["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"], Kind.MXFP4),
}


def rounded(value, kind):
    """Returns a tensor whose elements a format holds exactly, and its bytes. Rows are along the last axis."""
    packed = quantize(value.contiguous().numpy(), kind)
    return torch.from_numpy(dequantize(packed, kind).astype(numpy.float32)), packed


def randomise(model):
    generator = torch.Generator().manual_seed(SEED)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() >= 2 and "bias" not in name:
            transposed = "experts" in name and "gpt_oss" == model.config.model_type or "c_" in name
            inputs = value.shape[-2] if transposed else value.shape[-1]
            scale = 1.0 if "embed" in name or "wte" in name or "wpe" in name else 1.5 / inputs**0.5
            noise = (scale * noise).half().float()
        else:
            noise = 0.2 * noise + (1.0 if ("norm" in name or "ln_" in name) and "bias" not in name else 0.0)
        if name.endswith("sinks"):
            noise = 5 * noise
        if "gate_up_proj" in name and model.config.model_type == "gpt_oss":
            # So that the bounds of the gate have an effect.
            noise = 3 * noise
        value.data.copy_(noise)


def experts(name, block, value, architecture):
    """Returns the experts' tensors by their names, each [expert, rows, columns], from tensors that hold gate and up."""
    is_bias, transposed = name.endswith("bias"), architecture == "gpt-oss"
    kind = "bias" if is_bias else "weight"
    if "down_proj" in name:
        return {f"{block}.ffn_down_exps.{kind}": value.transpose(1, 2) if transposed and not is_bias else value}
    if transposed:
        parts = [value[..., 0::2], value[..., 1::2]]
        parts = parts if is_bias else [part.transpose(1, 2) for part in parts]
    else:
        parts = value.chunk(2, dim=1)
    return {f"{block}.ffn_gate_exps.{kind}": parts[0], f"{block}.ffn_up_exps.{kind}": parts[1]}


GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
PARTS = {"mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}


def tensors(variant, architecture, name, value):
    """Returns the tensors of a file that a parameter becomes."""
    if architecture == "gpt2":
        part, kind = name.removeprefix("transformer.").rsplit(".", 1)
        block = ""
        if part.startswith("h."):
            _, layer, part = part.split(".", 2)
            block = f"blk.{layer}."
        # The weights of its products are stored as [in, out].
        return {f"{block}{GPT2[part]}.{kind}": value.T if "c_" in part and kind == "weight" else value}
    if name.startswith("model.layers."):
        layer, part = name.removeprefix("model.layers.").split(".", 1)
        block = f"blk.{layer}"
        if ".experts." in name:
            return experts(name, block, value, architecture)
        if part.endswith("self_attn.sinks"):
            return {f"{block}.attn_sinks.weight": value}
        module, kind = part.rsplit(".", 1)
        if module in PARTS:
            return {f"{block}.{PARTS[module]}.{kind}": value.reshape(-1) if module.endswith("expert_gate") else value}
        if architecture == "gpt-oss" and module == "post_attention_layernorm":
            return {f"{block}.post_attention_norm.{kind}": value}
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        value = torch.from_numpy(adjacent(value.numpy(), SIZES["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]))
    return {named(name, architecture): value}


def frequencies(rope, pairs):
    """Returns the divisors of Llama 3.1's frequencies, as llama.cpp's converter writes them."""
    low, high = (rope["original_max_position_embeddings"] / rope[key] for key in ("low_freq_factor", "high_freq_factor"))
    factors = []
    for pair in range(pairs):
        length = 2 * math.pi * rope["rope_theta"] ** (pair / pairs)
        smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        factors.append(1.0 if length < high else rope["factor"] if length > low else 1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(factors, dtype=numpy.float32)


def add_sizes(writer, architecture, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    if architecture == "gpt2":
        writer.add_feed_forward_length(4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(depth)
    writer.add_value_length(depth)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    count = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if count:
        writer.add_expert_count(count)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture in ("qwen2moe", "qwen3moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_sliding_window(config.sliding_window)


def add_scaling(writer, config, pairs):
    rope = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type")
    if kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", frequencies(rope, pairs))
    if kind == "longrope":
        scale = config.max_position_embeddings / ORIGINAL
        writer.add_rope_scaling_orig_ctx_len(ORIGINAL)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(ORIGINAL)))
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", numpy.array(rope[f"{length}_factor"], dtype=numpy.float32))


def write(variant, model):
    """Writes a file, and sets the model's experts to the values that it holds."""
    architecture = variant if variant in ("gpt2", "qwen2moe", "qwen3moe", "gpt-oss") else variant.split("-")[0]
    config = model.config
    writer = gguf.GGUFWriter(OUT / f"{variant}.gguf", architecture)
    add_sizes(writer, architecture, config)
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    add_scaling(writer, config, depth // 2)
    if variant == "llama-experts":
        add_vocabulary(writer)
    tied = config.tie_word_embeddings
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        for of, part in tensors(variant, architecture, name, value.detach()).items():
            kind = PACKED.get(variant, {}).get(of.split(".")[-2]) if of.endswith("weight") else None
            if kind is not None:
                exact, packed = rounded(part, kind)
                part.copy_(exact)
                writer.add_tensor(of, packed, raw_dtype=kind)
                continue
            half = part.dim() >= 2 and of.endswith("weight") and "ffn_gate_inp" not in of
            writer.add_tensor(of, part.contiguous().numpy().astype(numpy.float16 if half else numpy.float32))
    finish(writer)


def main():
    ids = torch.tensor([[(i * i * 7 + i * 3 + 5) % SIZES["vocab_size"] for i in range(TOKENS)]])
    for variant, model in models().items():
        randomise(model)
        write(variant, model)
        expected = logits(model, ids)
        numpy.save(OUT / f"{variant}.npy", expected)
        if variant == "phi3-long":
            # A context of the first length has other factors.
            numpy.save(OUT / f"{variant}-short.npy", logits(model, ids[:, :ORIGINAL]))
        print(variant, "spread", expected.std())
        try:
            again = type(model).from_pretrained(OUT, gguf_file=f"{variant}.gguf", config=model.config, attn_implementation="eager")
            print("  read again", abs(logits(again, ids) - expected).max())
        except Exception as error:
            print("  transformers does not read the file:", str(error)[:150])


if __name__ == "__main__":
    main()
