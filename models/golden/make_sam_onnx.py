#!/usr/bin/env python3
"""Exports two blocks of SAM's image encoder (ViT-B, 1024 × 1024 pixels) as the transformers library has it to ONNX, without weights.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_sam_onnx.py models/golden/onnx/sam

Both exporters of torch, attention spelled out (eager) and fused (sdpa); a block that attends in windows and one that attends to the whole
image. What is planned needs shapes only. The venv is that of benches/peers/setup.sh.
"""
import argparse
import itertools
import pathlib
import tempfile
import warnings

import onnx
import torch
from make_minilm_onnx import without_weights
from torch import nn
from transformers import SamVisionConfig, SamVisionModel


class Encoder(nn.Module):
    def __init__(self, attention):
        super().__init__()
        config = SamVisionConfig(num_hidden_layers=2, global_attn_indexes=[1], attn_implementation=attention)
        self.model = SamVisionModel(config)
        with torch.no_grad():
            for parameter in self.parameters():
                # The exporter merges equal tensors, and all biases are zeros at first.
                parameter.normal_()

    def forward(self, pixels):
        return self.model(pixel_values=pixels, return_dict=False)[0]


def make(folder, new, attention):
    model = Encoder(attention).eval()
    name = f"{'new' if new else 'old'}-{attention}"
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        path = pathlib.Path(scratch, "model.onnx")
        how = {"dynamo": new, "opset_version": 18 if new else 17, "input_names": ["pixels"], "output_names": ["embedding"]}
        torch.onnx.export(model, (torch.randn(1, 3, 1024, 1024),), str(path), verbose=False, **how)
        exported = onnx.load(path)
    onnx.save(without_weights(exported), folder / f"{name}.onnx")
    print(f"{name}: {len(exported.graph.node)} nodes, {(folder / f'{name}.onnx').stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    for new, attention in itertools.product([False, True], ["eager", "sdpa"]):
        make(args.folder, new, attention)


if __name__ == "__main__":
    main()
