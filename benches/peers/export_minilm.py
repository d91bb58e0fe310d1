#!/usr/bin/env python3
"""Exports MiniLM (token ids and mask -> last hidden state) with its real weights to ONNX, for the peers that read it."""
import argparse
import pathlib
import warnings

import torch
from safetensors.torch import load_file
from torch import nn

HEADS = 12
# Our module names -> the checkpoint's, within one layer.
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "ln1": "attention.output.LayerNorm",
    "f1": "intermediate.dense",
    "f2": "output.dense",
    "ln2": "output.LayerNorm",
}


class Layer(nn.Module):
    """A post-norm encoder layer, its attention spelled out so that the peer is free to fuse it."""

    def __init__(self, hidden, inner):
        super().__init__()
        self.scale = (hidden // HEADS) ** -0.5
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden) for _ in range(4))
        self.f1, self.f2 = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.ln1, self.ln2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)

    def forward(self, x, mask):
        batch, seq, hidden = x.shape
        q, k, v = (f(x).view(batch, seq, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = torch.softmax(q @ k.transpose(-1, -2) * self.scale + mask, -1) @ v
        x = self.ln1(x + self.o(a.transpose(1, 2).reshape(batch, seq, hidden)))
        return self.ln2(x + self.f2(nn.functional.gelu(self.f1(x))))


class Bert(nn.Module):
    """The encoder; token types are all zero."""

    def __init__(self, hidden=384, inner=1536, layers=6, vocabulary=30522, positions=512):
        super().__init__()
        self.word, self.pos = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.typ, self.ln = nn.Embedding(2, hidden), nn.LayerNorm(hidden, 1e-12)
        self.layers = nn.ModuleList(Layer(hidden, inner) for _ in range(layers))

    def forward(self, ids, mask):
        x = self.ln(self.word(ids) + self.typ.weight[0] + self.pos.weight[: ids.shape[1]])
        bias = (1.0 - mask.to(x.dtype))[:, None, None, :] * -3.4028e38
        for layer in self.layers:
            x = layer(x, bias)
        return x


def load(path):
    """The model with the checkpoint's weights; every parameter must be there."""
    names = {
        "word": "embeddings.word_embeddings",
        "pos": "embeddings.position_embeddings",
        "typ": "embeddings.token_type_embeddings",
        "ln": "embeddings.LayerNorm",
    }
    model = Bert().eval()
    for at in range(len(model.layers)):
        names |= {f"layers.{at}.{ours}": f"encoder.layer.{at}.{theirs}" for ours, theirs in LAYER.items()}
    tensors = load_file(path)
    state = {}
    for name in model.state_dict():
        module, kind = name.rsplit(".", 1)
        state[name] = tensors[f"{names[module]}.{kind}"].float()
    model.load_state_dict(state)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder with model.safetensors")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the ONNX file to write")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=128)
    args = parser.parse_args()
    if not 1 <= args.seq <= 512:
        raise SystemExit(f"export_minilm: --seq {args.seq} is outside 1..=512, the positions that MiniLM has")

    model = load(args.weights / "model.safetensors")
    # The TorchScript exporter gives the graph that peers' fusions know; torch warns that it is no longer the default.
    warnings.simplefilter("ignore", DeprecationWarning)
    ids = torch.randint(1000, 30000, (args.batch, args.seq))
    with torch.no_grad():
        torch.onnx.export(
            model,
            (ids, torch.ones_like(ids)),
            str(args.out),
            input_names=["ids", "mask"],
            output_names=["hidden"],
            opset_version=17,
            dynamo=False,
            do_constant_folding=True,
        )
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
