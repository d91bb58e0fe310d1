#!/usr/bin/env python3
"""Writes models of one op each to the folder of `architectures.py`, whose `measure` then includes them. This finds ops that are slow in any model.

    ~/.cache/eutectic-peers/venv/bin/python benches/peers/ops.py
    ~/.cache/eutectic-peers/venv/bin/python benches/peers/architectures.py measure 'op-*'
"""
import argparse
import os
import pathlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20
rng = np.random.default_rng(7)


def real(*shape, low=-3.0, high=3.0, dtype="f4"):
    return rng.uniform(low, high, shape).astype(dtype)


def whole(*shape, low=0, high=100, dtype="i8"):
    return rng.integers(low, high, shape).astype(dtype)


def truth(*shape):
    return rng.integers(0, 2, shape).astype(bool)


def ints(*values):
    return np.array(values, np.int64)


def ops():
    """Returns name, op, inputs, constants and attributes. Inputs come first, in order."""
    plane, image = (1024, 1024), (1, 32, 128, 128)
    for op in """Abs Neg Exp Sin Cos Tan Atan Sinh Cosh Asinh Erf Tanh Sigmoid Relu Softplus Softsign Floor Round Sign Reciprocal
            HardSwish LeakyRelu Elu Selu Mish Gelu ThresholdedRelu IsNaN""".split():
        yield op, op, [real(*plane)], [], {}
    for op, low, high in (("Sqrt", 0, 3), ("Log", 0.01, 3), ("Acosh", 1, 4), ("Asin", -1, 1), ("Acos", -1, 1), ("Atanh", -0.9, 0.9)):
        yield op, op, [real(*plane, low=low, high=high)], [], {}
    for dtype in ("f4", "i4", "i8"):
        for op in ("Add", "Mul", "Div", "Max", "Equal", "Less"):
            yield f"{op}-{dtype}", op, [whole(*plane, low=1, dtype=dtype), whole(*plane, low=1, dtype=dtype)], [], {}
    for op in ("And", "Or", "Xor"):
        yield op, op, [truth(*plane), truth(*plane)], [], {}
    yield "Where", "Where", [truth(*plane), real(*plane), real(*plane)], [], {}
    for source, target in (("f4", "i4"), ("f4", "u1"), ("f4", "f2"), ("u1", "f4"), ("f2", "f4"), ("i8", "f4"), ("i4", "i8")):
        to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        yield f"Cast-{source}-{target}", "Cast", [whole(*plane, dtype=source)], [], {"to": to}
    for axis in (0, 1):
        for op in ("ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
            yield f"{op}-{axis}", op, [real(*plane)], [ints(axis)], {}
        for op in ("Softmax", "LogSoftmax", "ArgMax"):
            yield f"{op}-{axis}", op, [real(*plane)], [], {"axis": axis}
        yield f"CumSum-{axis}", "CumSum", [real(*plane)], [np.int64(axis)], {}
    yield "TopK-rows", "TopK", [real(*plane)], [ints(10)], {}
    yield "TopK-boxes", "TopK", [real(1, 8400)], [ints(300)], {}
    yield "Transpose", "Transpose", [real(*plane)], [], {"perm": [1, 0]}
    yield "Transpose-heads", "Transpose", [real(8, 128, 12, 64)], [], {"perm": [0, 2, 1, 3]}
    yield "Concat", "Concat", [real(*plane), real(*plane)], [], {"axis": 1}
    yield "Gather", "Gather", [real(30_000, 256), whole(4096, high=30_000)], [], {}
    yield "GatherElements", "GatherElements", [real(*plane), whole(*plane, high=1024)], [], {"axis": 1}
    yield "ScatterElements", "ScatterElements", [real(*plane), whole(128, 1024, high=1024), real(128, 1024)], [], {}
    yield "ScatterND", "ScatterND", [real(*plane), whole(512, 1, high=1024), real(512, 1024)], [], {}
    yield "SpaceToDepth", "SpaceToDepth", [real(1, 16, 256, 256)], [], {"blocksize": 2}
    yield "DepthToSpace", "DepthToSpace", [real(1, 64, 128, 128)], [], {"blocksize": 2}
    yield "MaxPool-2", "MaxPool", [real(*image)], [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    yield "MaxPool-5", "MaxPool", [real(*image)], [], {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}
    yield "AveragePool", "AveragePool", [real(*image)], [], {"kernel_shape": [2, 2], "strides": [2, 2]}
    for mode in ("nearest", "linear", "cubic"):
        yield f"Resize-{mode}-up", "Resize", [real(1, 32, 64, 64)], [None, None, ints(1, 32, 128, 128)], {"mode": mode}
        yield f"Resize-{mode}-down", "Resize", [real(1, 3, 512, 512)], [None, None, ints(1, 3, 224, 224)], {"mode": mode}
    yield "LayerNorm", "LayerNormalization", [real(*plane)], [real(1024), real(1024)], {}
    yield "InstanceNorm", "InstanceNormalization", [real(*image)], [real(32), real(32)], {}
    yield "GridSample", "GridSample", [real(*image), real(1, 64, 64, 2, low=-1, high=1)], [], {}
    yield "QuantizeLinear", "QuantizeLinear", [real(*plane)], [np.float32(0.02), np.uint8(128)], {}
    yield "DequantizeLinear", "DequantizeLinear", [whole(*plane, dtype="u1")], [np.float32(0.02), np.uint8(128)], {}
    for rows, depth, columns in ((1, 4096, 4096), (128, 768, 768), (128, 768, 3072), (512, 512, 512), (1000, 33, 77)):
        yield f"MatMul-{rows}x{depth}x{columns}", "MatMul", [real(rows, depth)], [real(depth, columns)], {}
    for to, of, size, stride, extent, groups in ((64, 3, 7, 2, 224, 1), (64, 64, 3, 1, 56, 1), (256, 64, 1, 1, 56, 1),
                                                 (96, 96, 3, 1, 56, 96), (384, 384, 7, 1, 14, 384), (64, 64, 3, 1, 56, 4)):
        attributes = {"strides": [stride] * 2, "pads": [size // 2] * 4, "group": groups}
        yield f"Conv-{of}-{to}-{size}-{groups}", "Conv", [real(1, of, extent, extent)], [real(to, of // groups, size, size)], attributes
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    yield "ConvTranspose", "ConvTranspose", [real(1, 64, 32, 32)], [real(64, 32, 4, 4), real(32)], attributes


def write(folder, op, inputs, constants, attributes):
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {f"x{at}": array for at, array in enumerate(inputs)}
    named = {f"c{at}": np.asarray(array) for at, array in enumerate(constants) if array is not None}
    names = [*inputs, *("" if array is None else f"c{at}" for at, array in enumerate(constants))]
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in inputs.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in named.items()]
    node = helper.make_node(op, names, outputs, **attributes)
    graph = helper.make_graph([node], op, ports, [onnx.ValueInfoProto(name="y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(folder / "model.onnx"))
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "state").write_text("written")


def main():
    peers = pathlib.Path(os.environ.get("PEERS_DIR") or pathlib.Path.home() / ".cache/eutectic-peers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=peers / "onnx" / "arch")
    args = parser.parse_args()
    for name, op, inputs, constants, attributes in ops():
        write(args.folder / f"op-{name}.plain.onnx", op, inputs, constants, attributes)
        print(name)


if __name__ == "__main__":
    main()
