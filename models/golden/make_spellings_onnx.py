#!/usr/bin/env python3
"""Exports BERT, Llama, ViT and T5 as the transformers library has them to ONNX, without weights, in every spelling of attention.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_spellings_onnx.py models/golden/onnx/spellings

Both exporters of torch, attention spelled out (eager) and fused (sdpa); two layers of the architectures of benches/peers/zoo.py. Kernels
must not depend on who exported, so names are left out. The venv is that of benches/peers/setup.sh.
"""
import argparse
import pathlib
import sys
import tempfile
import warnings

import onnx
import torch
from make_minilm_onnx import without_weights

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benches/peers"))
import architectures  # noqa: E402
import zoo  # noqa: E402

# Smaller sizes: two layers, and few tokens, because exporters write tables of their distances.
TEXT = ({"num_hidden_layers": 2}, lambda: zoo.text(1, 24))
MODELS = {
    "bert": TEXT,
    "llama": TEXT,
    "vit": ({"num_hidden_layers": 2, "image_size": 48}, lambda: zoo.image(48)),
    "t5": ({"num_layers": 2}, TEXT[1]),
}


def without_names(model):
    """Numbers the values, because names would be most of a small file."""
    graph = model.graph
    kept = {value.name for value in [*graph.input, *graph.output]} | {""}
    number = {}

    def short(name):
        return name if name in kept else number.setdefault(name, f"v{len(number)}")

    for node in graph.node:
        node.name = ""
        node.input[:], node.output[:] = [short(n) for n in node.input], [short(n) for n in node.output]
    for tensor in graph.initializer:
        tensor.name = short(tensor.name)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, (smaller, given) in MODELS.items():
        (args.folder / name).mkdir(parents=True, exist_ok=True)
        kind, config, values, _ = zoo.EVERY_SPELLING[name]
        zoo.EVERY_SPELLING[name] = (kind, config, values | smaller, given)
        for attention, exporter in zoo.variants(name):
            target = args.folder / name / f"{attention}-{exporter}.onnx"
            with tempfile.TemporaryDirectory() as scratch:
                scratch = pathlib.Path(scratch)
                architectures.write(*zoo.make(name, attention), scratch, exporter == "dynamo")
                exported = onnx.load(scratch / "model.onnx")
            onnx.save(without_names(without_weights(exported)), target)
            print(f"{target}: {len(exported.graph.node)} nodes, {target.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
