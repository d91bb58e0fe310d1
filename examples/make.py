"""Writes the arrays and the ONNX model of the examples. Its results are committed; it needs numpy and onnx.

All numbers are small integers, so that results are exact in f32 and can be compared digit by digit.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent


def integers(*shape):
    """Returns integers from -3 to 4 in a fixed order."""
    return (np.arange(np.prod(shape)) * 5 % 8 - 3).astype(np.float32).reshape(shape)


def save(name, array):
    np.save(HERE / name, array)


def dense():
    save("dense/x.npy", integers(2, 3))
    save("dense/w.npy", integers(3, 4))
    save("dense/b.npy", integers(4))


def lengths():
    save("lengths/w.npy", integers(4, 2))
    save("lengths/one-row.npy", integers(1, 4))
    save("lengths/three-rows.npy", integers(3, 4))


def perceptron():
    """Two layers with a rectifier between them, for any batch. NumPy computes y.npy."""
    x, w1, b1, w2, b2 = integers(2, 6), integers(6, 8), integers(8), integers(8, 3), integers(3)
    weights = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, HERE / "onnx/perceptron.onnx")
    save("onnx/x.npy", x)
    save("onnx/y.npy", np.maximum(x @ w1 + b1, 0) @ w2 + b2)


if __name__ == "__main__":
    dense()
    lengths()
    perceptron()
