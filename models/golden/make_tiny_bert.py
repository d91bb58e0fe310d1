#!/usr/bin/env python3
"""Makes tiny-bert/: a two-layer BERT with random weights, its tokenizer, and the results of transformers in float64.

Run once, by hand, in the environment of benches/peers/setup.sh:
    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_tiny_bert.py
"""
import json
import pathlib

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

SEED = 20261120
MAX_TOKENS = 12
ACTIVATIONS = ["gelu", "gelu_new", "relu", "silu", "tanh"]
TEXTS = ["", "melt", "Two METALS melt.", "metals fuse at the lowest temperature, and mixtures freeze: rules, plans, kernels", "\u6771 caf\u00e9"]
WORDS = "two metal melt fuse at the lowest temperature and mixture freeze rule plan kernel cafe ##s ##d . , : \u6771".split()
# Heads of depth 16, so that the scale of the scores, 1/4, is exact in every precision.
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=24)


def tokenizer():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: at for at, token in enumerate(special + WORDS)}
    result = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    result.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    result.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    result.add_special_tokens(special)
    # Both are to be overridden by the reader, as in the real model's file.
    result.enable_truncation(5)
    result.enable_padding(length=5)
    return result


def randomise(model):
    """Sets weights so that every part has an effect: transformers' own initialization is nearly the identity."""
    generator = torch.Generator().manual_seed(SEED)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() == 2:
            noise *= 1.5 / value.shape[1] ** 0.5
        else:
            noise = 0.2 * noise + (1.0 if name.endswith("LayerNorm.weight") else 0.0)
        value.data.copy_(noise)


def embed(hidden, mask):
    weight = mask[..., None].to(hidden.dtype)
    mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(mean, dim=1, eps=1e-12)


def main():
    out = pathlib.Path(__file__).resolve().parent / "tiny-bert"
    out.mkdir(exist_ok=True)
    tokens = tokenizer()
    tokens.save(str(out / "tokenizer.json"))
    size = tokens.get_vocab_size()
    ids = torch.randint(0, size, (3, 7), generator=torch.Generator().manual_seed(SEED))
    mask = torch.tensor([[1] * n + [0] * (7 - n) for n in (7, 4, 1)])

    expected = {"ids": ids, "mask": mask}
    for activation in ACTIVATIONS:
        config = transformers.BertConfig(vocab_size=size, hidden_act=activation, attn_implementation="eager", **SIZES)
        model = transformers.BertModel(config).eval()
        randomise(model)
        if activation == "gelu":
            config.save_pretrained(out)
            save_file(model.state_dict(), out / "model.safetensors", metadata={"format": "pt"})
            tokens.no_padding()
            tokens.enable_truncation(MAX_TOKENS)
            rows = [tokens.encode(text).ids for text in TEXTS]
            with torch.inference_mode():
                model.double()
                vectors = [embed(model(input_ids=torch.tensor([r])).last_hidden_state, torch.ones(1, len(r)))[0] for r in rows]
            cases = [dict(text=t, ids=r, embedding=v.tolist()) for t, r, v in zip(TEXTS, rows, vectors)]
            (out / "texts.json").write_text(json.dumps(dict(max_tokens=MAX_TOKENS, cases=cases), indent=0) + "\n")
        with torch.inference_mode():
            hidden = model.double()(input_ids=ids, attention_mask=mask).last_hidden_state
        expected[f"{activation}.last_hidden_state"] = hidden.clone()
        expected[f"{activation}.sentence_embedding"] = embed(hidden, mask).clone()
    save_file(expected, out / "expected.safetensors")
    for file in sorted(out.iterdir()):
        print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
