#!/usr/bin/env python3
"""Exports tiny transformers with random weights to ONNX, with every form of attention that torch's exporters write.

    venv/bin/python models/scripts/export-attention.py FOLDER [GLOB]

The venv needs torch, transformers, onnx and onnxscript. Each file is MODEL-ATTENTION-EXPORTER.onnx: eager or sdpa, by the old exporter
(TorchScript) or the new one (dynamo), of two layers. `eutectic opt FOLDER/FILE.onnx --shape batch=2 --shape seq=7` should say one attention
kernel for each layer.
"""
import argparse
import fnmatch
import itertools
import pathlib
import warnings

import torch
import transformers as tf

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = {"vocab_size": 60, "max_position_embeddings": 48}
GROUPED = SIZES | WORDS | {"num_key_value_heads": 2}
PIXELS = SIZES | {"image_size": 16, "patch_size": 4}
GPT = {"vocab_size": 60, "n_positions": 48, "n_embd": 32, "n_layer": 2, "n_head": 4}
T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
CLIP = SIZES | {"vocab_size": 60, "max_position_embeddings": 48, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# Name: class, configuration, inputs.
MODELS = {
    "bert": (tf.BertModel, tf.BertConfig, SIZES | WORDS, "text"),
    "distilbert": (tf.DistilBertModel, tf.DistilBertConfig, WORDS | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, "text"),
    "roberta": (tf.RobertaModel, tf.RobertaConfig, SIZES | WORDS, "text"),
    "mpnet": (tf.MPNetModel, tf.MPNetConfig, SIZES | WORDS, "text"),
    "deberta": (tf.DebertaModel, tf.DebertaConfig, SIZES | WORDS | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, "text"),
    "deberta-v2": (
        tf.DebertaV2Model, tf.DebertaV2Config,
        SIZES | WORDS | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
        "text",
    ),
    "t5": (tf.T5EncoderModel, tf.T5Config, T5, "text"),
    "llama": (tf.LlamaForCausalLM, tf.LlamaConfig, GROUPED, "causal"),
    "mistral": (tf.MistralForCausalLM, tf.MistralConfig, GROUPED | {"sliding_window": 4}, "causal"),
    "qwen2": (tf.Qwen2ForCausalLM, tf.Qwen2Config, GROUPED, "causal"),
    "gemma2": (tf.Gemma2ForCausalLM, tf.Gemma2Config, GROUPED | {"head_dim": 8, "sliding_window": 4}, "causal"),
    "gemma3": (tf.Gemma3ForCausalLM, tf.Gemma3TextConfig, GROUPED | {"head_dim": 8, "sliding_window": 4}, "causal"),
    "gpt2": (tf.GPT2LMHeadModel, tf.GPT2Config, GPT, "causal"),
    "gpt-neox": (tf.GPTNeoXForCausalLM, tf.GPTNeoXConfig, SIZES | WORDS, "causal"),
    "opt": (tf.OPTForCausalLM, tf.OPTConfig, SIZES | WORDS | {"ffn_dim": 48, "word_embed_proj_dim": 32}, "causal"),
    "bloom": (tf.BloomForCausalLM, tf.BloomConfig, {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "causal"),
    "clip-text": (tf.CLIPTextModel, tf.CLIPTextConfig, CLIP, "text"),
    "clip-vision": (tf.CLIPVisionModel, tf.CLIPVisionConfig, PIXELS, "image"),
    "vit": (tf.ViTModel, tf.ViTConfig, PIXELS, "image"),
    "siglip": (tf.SiglipVisionModel, tf.SiglipVisionConfig, PIXELS, "image"),
    "dinov2": (tf.Dinov2Model, tf.Dinov2Config, PIXELS, "image"),
}


class First(torch.nn.Module):
    """Ids and mask, or an image, to the first output."""

    def __init__(self, model, how):
        super().__init__()
        self.model = model
        self.extra = {"use_cache": False} if how == "causal" else {}

    def forward(self, x, mask=None):
        if mask is None:
            return self.model(x, return_dict=False)[0]
        return self.model(input_ids=x, attention_mask=mask, return_dict=False, **self.extra)[0]


def inputs(how):
    if how == "image":
        return {"x": torch.randn(2, 3, 16, 16)}
    x = torch.randint(3, 60, (2, 7))
    mask = torch.ones_like(x)
    mask[1, 5:] = 0
    return {"x": x, "mask": mask}


def export(name, attention, new, path):
    kind, config, values, how = MODELS[name]
    torch.manual_seed(0)
    model = First(kind(config(**values, attn_implementation=attention)).eval(), how).eval()
    given = inputs(how)
    named = {n: {0: "batch"} if how == "image" else {0: "batch", 1: "seq"} for n in given}
    dynamic = {"dynamic_axes": named}
    if new:
        of = {n: torch.export.Dim(n, min=2, max=24) for n in ("batch", "seq")}
        dynamic = {"dynamic_shapes": {i: {a: of[n] for a, n in axes.items()} for i, axes in named.items()}}
        dynamic |= {"external_data": False}
    with torch.no_grad():
        torch.onnx.export(
            model, tuple(given.values()), path, input_names=list(given), output_names=["y"],
            dynamo=new, opset_version=20 if new else 17, verbose=False, **dynamic,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("glob", nargs="?", default="*")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, attention, new in itertools.product(MODELS, ["eager", "sdpa"], [False, True]):
        label = f"{name}-{attention}-{'new' if new else 'old'}"
        path = args.folder / f"{label}.onnx"
        if not fnmatch.fnmatch(label, args.glob) or path.exists():
            continue
        try:
            export(name, attention, new, str(path))
            print(f"{label}: written", flush=True)
        except Exception as error:  # A failing exporter does not stop the others.
            print(f"{label}: {type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error).strip() else ''}", flush=True)


if __name__ == "__main__":
    main()
