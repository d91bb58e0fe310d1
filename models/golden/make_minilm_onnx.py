#!/usr/bin/env python3
"""Exports MiniLM as the transformers library has it to ONNX, without weights: each large tensor is external data that is not there.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_minilm_onnx.py models/golden/onnx/minilm

Both exporters of torch, opsets 13, 17 and 20, attention spelled out (eager) and fused (sdpa); two layers, because the others are the
same. What is planned needs shapes only. The venv is that of benches/peers/setup.sh, with onnxscript 0.7.2 beside it.
"""
import argparse
import itertools
import pathlib
import tempfile
import warnings

import onnx
import torch
from torch import nn
from transformers import BertConfig, BertModel

# Tensors with more elements than this are exported without their values.
KEPT = 64


class Encoder(nn.Module):
    """Token ids and mask -> the last hidden state. The mask becomes the bias that BERT's reference code adds to the scores: how the
    library makes one changes from version to version, and it takes a bias of four axes as it is."""

    def __init__(self, attention):
        super().__init__()
        config = BertConfig(
            vocab_size=30522,
            hidden_size=384,
            num_hidden_layers=2,
            num_attention_heads=12,
            intermediate_size=1536,
            attn_implementation=attention,
        )
        self.model = BertModel(config, add_pooling_layer=False)
        with torch.no_grad():
            for parameter in self.parameters():
                # The exporter merges equal tensors, and all biases are zeros at first.
                parameter.normal_()

    def forward(self, ids, mask):
        bias = (1.0 - mask.float())[:, None, None, :] * torch.finfo(torch.float32).min
        return self.model(input_ids=ids, attention_mask=bias, return_dict=False)[0]


def without_weights(model):
    """Replaces the values of large tensors by references to a file that does not exist."""
    for tensor in model.graph.initializer:
        count = 1
        for n in tensor.dims:
            count *= n
        if count > KEPT and tensor.data_type == onnx.TensorProto.FLOAT:
            for field in ["raw_data", "float_data", "external_data"]:
                tensor.ClearField(field)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")
    for node in model.graph.node:
        # Source lines of the exporting script would be most of the file.
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    return model


def make(folder, new, opset, attention):
    torch.manual_seed(1)
    model = Encoder(attention).eval()
    ids = torch.randint(0, 30522, (1, 128))
    inputs = (ids, torch.ones_like(ids))
    name = f"{'new' if new else 'old'}-{opset}-{attention}"
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        path = pathlib.Path(scratch, "model.onnx")
        how = {"dynamo": new, "opset_version": opset, "input_names": ["ids", "mask"], "output_names": ["hidden"]}
        torch.onnx.export(model, inputs, str(path), verbose=False, **how)
        exported = onnx.load(path)
    written = exported.opset_import[0].version
    onnx.save(without_weights(exported), folder / f"{name}.onnx")
    size = (folder / f"{name}.onnx").stat().st_size
    print(f"{name}: opset {written}, {len(exported.graph.node)} nodes, {size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    for new, opset, attention in itertools.product([False, True], [13, 17, 20], ["eager", "sdpa"]):
        # The TorchScript exporter supports fused attention from opset 14 on.
        if (new, opset, attention) != (False, 13, "sdpa"):
            make(args.folder, new, opset, attention)


if __name__ == "__main__":
    main()
