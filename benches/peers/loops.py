#!/usr/bin/env python3
"""Writes an LSTM, a GRU and a Scan of many steps to the folder of `architectures.py`, whose `measure` then includes them.

    ~/.cache/eutectic-peers/venv/bin/python benches/peers/loops.py [--steps 1000]
    ~/.cache/eutectic-peers/venv/bin/python benches/peers/architectures.py measure 'loop-*'
"""
import argparse
import os
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUTS, HIDDEN = 64, 128
rng = np.random.default_rng(7)


def weight(*shape):
    return (rng.standard_normal(shape) / np.sqrt(HIDDEN)).astype(np.float32)


def layer(op, gates):
    tensors = {"w": weight(1, gates * HIDDEN, INPUTS), "r": weight(1, gates * HIDDEN, HIDDEN), "b": weight(1, 2 * gates * HIDDEN)}
    return [helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=HIDDEN)], tensors, 4


def scan():
    """Builds tanh(x·W + h·R + b) from primitive ops."""
    value = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n])
    nodes = [
        helper.make_node("MatMul", ["part", "w"], ["of_x"]), helper.make_node("MatMul", ["h", "r"], ["of_h"]),
        helper.make_node("Add", ["of_x", "of_h"], ["sum"]), helper.make_node("Add", ["sum", "b"], ["all"]),
        helper.make_node("Tanh", ["all"], ["next"]), helper.make_node("Identity", ["next"], ["kept"]),
    ]
    body = helper.make_graph(nodes, "body", [value("h", HIDDEN), value("part", INPUTS)], [value("next", HIDDEN), value("kept", HIDDEN)])
    tensors = {"w": weight(INPUTS, HIDDEN), "r": weight(HIDDEN, HIDDEN), "b": weight(1, HIDDEN), "h0": weight(1, HIDDEN)}
    return [helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1)], tensors, 3


def write(folder, name, steps, nodes, tensors, rank):
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, INPUTS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    constants = [numpy_helper.from_array(value, key) for key, value in tensors.items()]
    graph = helper.make_graph(nodes, name, [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / "model.onnx"))
    np.save(folder / "x.npy", weight(steps, 1, INPUTS))
    (folder / "state").write_text("written")


def main():
    peers = pathlib.Path(os.environ.get("PEERS_DIR") or pathlib.Path.home() / ".cache/eutectic-peers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=peers / "onnx" / "arch")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    for name, model in (("loop-lstm", layer("LSTM", 4)), ("loop-gru", layer("GRU", 3)), ("loop-scan", scan())):
        write(args.folder, f"{name}.plain.onnx", args.steps, *model)
        print(name)


if __name__ == "__main__":
    main()
