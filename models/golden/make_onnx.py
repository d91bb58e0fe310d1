#!/usr/bin/env python3
"""Exports tiny models to ONNX, with inputs and the results of torch: onnx/NAME.onnx and onnx/NAME.safetensors.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_onnx.py models/golden/onnx

The venv is that of benches/peers/setup.sh (torch 2.15, transformers 5.23, onnx 1.23), with onnxscript 0.7.2 beside it. Both exporters of torch are used: what they
write differs in nearly everything.
"""
import argparse
import pathlib
import warnings

import onnx
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM


class Mlp(nn.Module):
    """Three linear layers, each with another activation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 5)])
        self.norm = nn.LayerNorm(24)

    def forward(self, x):
        x = nn.functional.gelu(self.layers[0](x))
        x = self.norm(x + nn.functional.silu(self.layers[1](x)))
        return torch.softmax(self.layers[2](x), -1)


class Cnn(nn.Module):
    """A residual block between two convolutions, as ResNets have it, for 3 x 13 x 10 images."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(8)
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4, 5)
        for norm in [self.norm, self.inner[1]]:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, stride=2, padding=1)
        x = self.up(x + self.inner(x))
        x = nn.functional.avg_pool2d(x, 2, ceil_mode=True)
        return self.head(x.mean((2, 3)))


class Hidden(nn.Module):
    """A model of the transformers library: token ids and mask -> its first output."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask, return_dict=False, **self.extra)[0]

    extra = {}


class Decoder(Hidden):
    """Logits of all positions, without a cache."""

    extra = {"use_cache": False}


def bert(attention):
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
        attn_implementation=attention,
    )
    return Hidden(BertModel(config, add_pooling_layer=False))


def llama(attention, layers):
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        max_position_embeddings=24,
        attn_implementation=attention,
    )
    return Decoder(LlamaForCausalLM(config))


def texts():
    ids = torch.randint(0, 60, (2, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return {"ids": ids, "mask": mask}


# Name: model, inputs, their dynamic axes, the exporter's arguments.
SEQUENCES = {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}
OLD, NEW = {"dynamo": False, "opset_version": 17}, {"dynamo": True, "opset_version": 20}
CASES = {
    "mlp-old": (Mlp, lambda: {"x": torch.randn(3, 12)}, {"x": {0: "batch"}}, OLD),
    "mlp-new": (Mlp, lambda: {"x": torch.randn(3, 12)}, {"x": {0: "batch"}}, NEW),
    "cnn-old": (Cnn, lambda: {"x": torch.randn(2, 3, 13, 10)}, {"x": {0: "batch"}}, OLD),
    "cnn-new": (Cnn, lambda: {"x": torch.randn(2, 3, 13, 10)}, {"x": {0: "batch"}}, NEW),
    "bert-eager-old": (lambda: bert("eager"), texts, SEQUENCES, OLD | {"opset_version": 13}),
    "bert-sdpa-new": (lambda: bert("sdpa"), texts, SEQUENCES, NEW),
    "llama-eager-old": (lambda: llama("eager", 1), texts, SEQUENCES, OLD),
    "llama-sdpa-new": (lambda: llama("sdpa", 2), texts, SEQUENCES, NEW | {"opset_version": 23}),
}


def make(name, folder):
    build, inputs, axes, how = CASES[name]
    torch.manual_seed(sum(name.encode()))
    model, inputs = build().eval(), inputs()
    with torch.no_grad():
        for parameter in model.parameters():
            # The initial zeros and ones would hide errors.
            parameter.add_(0.1 * torch.randn_like(parameter))
        expected = model(*inputs.values())
    path = folder / f"{name}.onnx"
    dynamic = {"dynamic_axes": axes}
    if how["dynamo"]:
        of = {n: torch.export.Dim(n, min=2, max=24) for per in axes.values() for n in per.values()}
        dynamic = {"dynamic_shapes": {i: {a: of[n] for a, n in per.items()} for i, per in axes.items()}}
        dynamic |= {"external_data": False, "optimize": True}
    with torch.no_grad():
        torch.onnx.export(
            model,
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=["y"],
            verbose=False,
            **dynamic,
            **how,
        )
    small = onnx.load(path)
    for node in small.graph.node:
        # Source lines of the exporting script would be most of the file.
        del node.metadata_props[:]
        node.doc_string = ""
    del small.graph.value_info[:], small.graph.metadata_props[:], small.metadata_props[:]
    onnx.save(small, path)
    save_file({f"in.{n}": t for n, t in inputs.items()} | {"out.y": expected.contiguous()}, folder / f"{name}.safetensors")
    print(f"{path}: {path.stat().st_size} bytes, opset {small.opset_import[0].version}, {len(small.graph.node)} nodes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", help="one of the cases")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in [args.only] if args.only else CASES:
        make(name, args.folder)


if __name__ == "__main__":
    main()
