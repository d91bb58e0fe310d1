#!/usr/bin/env python3
"""Makes gguf/: blocks of each format with their values by the package gguf, and tiny decoders with their logits by transformers.

Run once, by hand, with torch, transformers, accelerate, sentencepiece and gguf (0.19.0):
    python models/golden/make_gguf.py
"""
import json
import pathlib

import gguf
import numpy
import sentencepiece
import torch
import transformers
from gguf import GGMLQuantizationType as Kind

SEED = 20261128
TOKENS = 64
OUT = pathlib.Path(__file__).resolve().parent / "gguf"
FORMATS = "F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()
# The byte offsets of the half-precision scales in a block.
SCALES = dict(Q4_0=[0], Q4_1=[0, 2], Q5_0=[0], Q5_1=[0, 2], Q8_0=[0], Q2_K=[80, 82], Q3_K=[108], Q4_K=[0, 2], Q5_K=[0, 2],
              Q6_K=[208], IQ4_NL=[0], IQ4_XS=[0])
SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
             attn_implementation="eager")


def formats():
    """Random bytes, so that every code occurs, with scales that are numbers; each tensor is followed by its values."""
    random = numpy.random.default_rng(SEED)
    writer = gguf.GGUFWriter(OUT / "formats.gguf", "formats")
    for name in FORMATS:
        kind = Kind[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = random.integers(0, 256, (1024 // block, size), dtype=numpy.uint8)
        for at in SCALES.get(name, []):
            raw[:, at : at + 2] = random.normal(0, 1, (len(raw), 1)).astype(numpy.float16).view(numpy.uint8)
        if name in ("F16", "BF16"):
            values = random.normal(0, 1, (1024, 1)).astype(numpy.float16)
            raw = values.view(numpy.uint8) if name == "F16" else (values.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
        if name == "MXFP4":
            # All exponents except the last one, which would make all elements of the block NaN.
            raw[:, 0] = random.integers(0, 255, len(raw))
            raw[:3, 0] = [0, 1, 2]
        raw = raw.reshape(2, -1)
        values = gguf.quants.dequantize(raw, kind)
        assert numpy.isfinite(values).all(), name
        writer.add_tensor(name, raw, raw_dtype=kind)
        writer.add_tensor(f"{name}.f32", values.astype(numpy.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def models():
    """Writes one model of each architecture. Its sizes distinguish all axes."""
    t = transformers
    half = dict(SIZES, head_dim=16)
    window = dict(sliding_window=9)
    capped = dict(attn_logit_softcapping=5.0, final_logit_softcapping=3.0, query_pre_attn_scalar=16)
    return {
        "llama": t.LlamaForCausalLM(t.LlamaConfig(**SIZES, rope_theta=5e4)),
        "qwen2": t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "qwen3": t.Qwen3ForCausalLM(t.Qwen3Config(**half)),
        "phi3": t.Phi3ForCausalLM(t.Phi3Config(**SIZES)),
        "gemma": t.GemmaForCausalLM(t.GemmaConfig(**half, hidden_act="gelu_pytorch_tanh")),
        "gemma2": t.Gemma2ForCausalLM(t.Gemma2Config(**half, **window, **capped)),
        "gemma3": t.Gemma3ForCausalLM(t.Gemma3TextConfig(**dict(half, num_hidden_layers=6), **window, query_pre_attn_scalar=16)),
    }


NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def named(name, architecture):
    """Returns the name of a tensor in GGUF files."""
    module, kind = name.rsplit(".", 1)
    if not module.startswith("model.layers."):
        return f"{NAMES[module]}.{kind}"
    layer, module = module.removeprefix("model.layers.").split(".", 1)
    gemma = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    norms = gemma if architecture in ("gemma2", "gemma3") else {"post_attention_layernorm": "ffn_norm"}
    return f"blk.{layer}.{norms.get(module) or NAMES[module]}.{kind}"


def adjacent(value, heads):
    """Returns rows of queries or keys in the order of the architecture llama: the coordinates of a pair are adjacent."""
    rows = value.shape[0]
    return value.reshape(heads, 2, rows // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


MERGES = ["t h", "th e", "\u0120 the", "i n", "\u0120 a", "e r", "o n", "a t", "r e", "a n", "n d", "an d", "\u0120 and", "o u", "i s", "o r",
          "e n", "a l", "e s", "t o", "s t"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:?!'-"
TEMPLATE = """{%- if messages[0].role == 'system' -%}
    {{- raise_exception('no system here') -}}
{%- endif -%}
{% for message in messages %}
    {{- bos_token + message['role'].strip().upper() + ': ' + message.content | trim + eos_token }}
{% endfor %}
{%- if add_generation_prompt %}A{% endif %}
"""


def add_vocabulary(writer):
    """Adds byte pairs, few enough that each has an embedding."""
    special = ["<unk>", "<s>", "</s>", "<|x|>"]
    tokens = special + ["\u0120", "\u010a", *LETTERS] + [merge.replace(" ", "") for merge in MERGES]
    assert len(tokens) == SIZES["vocab_size"] == len(set(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(special) + [1] * (len(tokens) - len(special)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def continued(model, name):
    """Writes the tokens of a prompt by the tokenizer of the file, and the most likely next tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(OUT, gguf_file=name)
    text = "The cat and the 12 hats, in on is"
    prompt = ids = [1] + tokenizer(text, add_special_tokens=False)["input_ids"]
    for _ in range(90):
        with torch.no_grad():
            ids = ids + [int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    message = [dict(role=" user ", content=" is the hat on? ")]
    chat = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    golden = dict(text=text, prompt=prompt, tokens=ids[len(prompt) :], chat=chat)
    (OUT / "llama.json").write_text(json.dumps(golden) + "\n")
    print(golden)


TEXTS = ["", " ", "the metals melt", " the  metals", "Mixtures freeze at 12.5 degrees!\nRules, plans;\tkernels", "caf\u00e9 \u6771\u4eac \U0001f642",
         "lowest temperature the lowest", "aaaaaaaaab", "\u2581x"]
CORPUS = """the mixture that melts at the lowest temperature of all mixtures of two metals is the eutectic mixture
rules rewrite programs and plans choose kernels; the plan that costs least is chosen
metals fuse at the lowest temperature, and mixtures freeze: rules, plans, kernels
a program of tensors is a graph of operations, and each operation has a type and a shape
"""


def sentence_pieces():
    """Makes a vocabulary with scores, and the tokens of texts by SentencePiece."""
    trained = OUT / "trained"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines() * 4), model_prefix=str(trained), model_type="bpe", vocab_size=400, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(trained) + ".model")
    count = model.get_piece_size()
    writer = gguf.GGUFWriter(OUT / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(n) for n in range(count)])
    writer.add_token_scores([model.get_score(n) for n in range(count)])
    kind = lambda n: 6 if model.is_byte(n) else 3 if model.is_control(n) else 2 if model.is_unknown(n) else 1
    writer.add_token_types([kind(n) for n in range(count)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    finish(writer)
    golden = [dict(text=text, ids=[1] + model.encode(text)) for text in TEXTS]
    (OUT / "pieces.json").write_text("[\n" + ",\n".join(map(json.dumps, golden)) + "\n]\n")
    for end in (".model", ".vocab"):
        trained.with_suffix(end).unlink()


def write(architecture, model):
    config = model.config
    writer = gguf.GGUFWriter(OUT / f"{architecture}.gguf", architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(depth)
    writer.add_value_length(depth)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "llama":
        add_vocabulary(writer)
    tied = config.tie_word_embeddings
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        value = value.detach().numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            value = adjacent(value, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        if architecture.startswith("gemma") and "norm" in name:
            value = value + 1
        value = value.astype(numpy.float16 if value.ndim == 2 else numpy.float32)
        writer.add_tensor(named(name, architecture), value)
    finish(writer)


def randomise(model):
    """Sets weights so that every part has an effect. They are exact in half precision if the file stores that."""
    generator = torch.Generator().manual_seed(SEED)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() == 2:
            scale = 1.0 if "embed" in name else 1.5 / value.shape[1] ** 0.5
            noise = (scale * noise).half().float()
        else:
            is_gain = "norm" in name and "gemma" not in model.config.model_type
            noise = 0.2 * noise + (1.0 if is_gain else 0.0)
        value.data.copy_(noise)


def logits(model, ids):
    with torch.no_grad():
        return model.double().eval()(ids).logits[0].float().numpy()


def main():
    OUT.mkdir(exist_ok=True)
    formats()
    sentence_pieces()
    ids = torch.tensor([[(i * i * 7 + i * 3 + 5) % SIZES["vocab_size"] for i in range(TOKENS)]])
    for architecture, model in models().items():
        randomise(model)
        write(architecture, model)
        expected = logits(model, ids)
        numpy.save(OUT / f"{architecture}.npy", expected)
        if architecture == "gemma":
            # transformers reads no file of this one; the writer is that of the two after it.
            continue
        # transformers reads the file as a model that computes the same, so the file is right.
        kind = type(model)
        # (Its readers of some architectures pass over the depth of heads: the configuration is given.)
        again = kind.from_pretrained(OUT, gguf_file=f"{architecture}.gguf", config=model.config, attn_implementation="eager")
        error = abs(logits(again, ids) - expected).max()
        if architecture == "llama":
            continued(again, "llama.gguf")
        print(architecture, "spread", expected.std(), "read again", error)


if __name__ == "__main__":
    main()
