#!/usr/bin/env python3
"""Writes models of recurrent layers, loops and branches, with inputs and the results of ONNX Runtime: onnx/NAME.onnx and onnx/NAME.safetensors.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_loops.py models/golden/onnx

Options that ONNX's own node tests do not cover: directions, lengths with them, clipping, activations, resets behind the product, forget gates
that follow input gates; scans backwards and along other axes; loops that end early. All results of a model are one vector `y`.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

rng = np.random.default_rng(5)
STEPS, BATCH, INPUTS, HIDDEN = 6, 3, 4, 5


def weight(*shape):
    return (rng.standard_normal(shape) * 0.6).astype(np.float32)


class Model:
    def __init__(self, name, inputs):
        self.name, self.inputs, self.nodes, self.tensors, self.results = name, inputs, [], [], []

    def tensor(self, value):
        name = f"t{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, count, **attributes):
        at = len(self.nodes)
        outputs = [f"n{at}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"/{op.lower()}_{at}/{op}", **attributes))
        return outputs

    def results_of(self, outputs):
        for output in outputs:
            self.results += self.node("Reshape", [output, self.tensor(np.array([-1], np.int64))], 1)

    def write(self, folder):
        self.nodes.append(helper.make_node("Concat", self.results, ["y"], axis=0))
        inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in self.inputs.items()]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
        graph = helper.make_graph(self.nodes, self.name, inputs, [output], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = session.run(None, self.inputs)[0]
        assert np.isfinite(y).all()
        # Our reader must infer the shapes.
        path = folder / self.name
        path.with_suffix(".onnx").write_bytes(model.SerializeToString())
        save_file({"out.y": y} | {f"in.{n}": v for n, v in self.inputs.items()}, path.with_suffix(".safetensors"))
        print(self.name, y.size, float(np.abs(y).max()))


def recurrent(folder):
    lengths = np.array([6, 2, 4], np.int32)
    m = Model("recurrent", {"x": weight(STEPS, BATCH, INPUTS), "lengths": lengths})
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}

    def layer(op, direction, lengths=False, start=False, bias=True, peep=False, **attributes):
        d, g = (2 if direction == "bidirectional" else 1), gates[op]
        state = lambda: m.tensor(weight(d, BATCH, HIDDEN)) if start else ""
        inputs = ["x", m.tensor(weight(d, g * HIDDEN, INPUTS)), m.tensor(weight(d, g * HIDDEN, HIDDEN))]
        inputs += [m.tensor(weight(d, 2 * g * HIDDEN)) if bias else "", "lengths" if lengths else "", state()]
        if op == "LSTM":
            inputs += [state(), m.tensor(weight(d, 3 * HIDDEN)) if peep else ""]
        count = 3 if op == "LSTM" else 2
        m.results_of(m.node(op, inputs, count, hidden_size=HIDDEN, direction=direction, **attributes))

    layer("LSTM", "forward", bias=False)
    layer("LSTM", "reverse", start=True, clip=0.7)
    layer("LSTM", "bidirectional", lengths=True, start=True, peep=True)
    layer("LSTM", "forward", input_forget=1, activations=["HardSigmoid", "Relu", "Softsign"], activation_alpha=[0.3], activation_beta=[0.4])
    layer("GRU", "forward", linear_before_reset=1, start=True)
    layer("GRU", "bidirectional", lengths=True, linear_before_reset=1)
    layer("GRU", "reverse", lengths=True, start=True, clip=0.5)
    layer("RNN", "bidirectional", lengths=True, start=True, activations=["Relu", "LeakyRelu"], activation_alpha=[0.2])
    layer("RNN", "reverse", clip=0.4)
    m.write(folder)


def info(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def control(folder):
    m = Model("control", {"x": weight(4, 3, 2), "limit": np.array(1.5, np.float32)})
    w = m.tensor(weight(3, 3))

    # state' = tanh(w·(state + part)); w and the limit are values of the enclosing graph.
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "part"], ["sum"]),
            helper.make_node("MatMul", [w, "sum"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
            helper.make_node("Mul", ["next", "limit"], ["scaled"]),
            helper.make_node("Transpose", ["sum"], ["turned"], perm=[1, 0]),
        ],
        "scanned",
        [info("state", [3, 2]), info("part", [3, 2])],
        [info("next", [3, 2]), info("scaled", [3, 2]), info("turned", [2, 3])],
    )
    start = m.tensor(np.full((3, 2), 0.1, np.float32))
    m.results_of(m.node("Scan", [start, "x"], 3, body=body, num_scan_inputs=1))
    m.results_of(
        m.node("Scan", [start, "x"], 3, body=body, num_scan_inputs=1, scan_input_directions=[1], scan_output_directions=[1, 0], scan_output_axes=[1, 2])
    )
    # Along the last axis, each part [4 3].
    along = helper.make_graph(
        [helper.make_node("Add", ["total", "column"], ["more"]), helper.make_node("Identity", ["more"], ["seen"])],
        "along",
        [info("total", [4, 3]), info("column", [4, 3])],
        [info("more", [4, 3]), info("seen", [4, 3])],
    )
    zeros = m.tensor(np.zeros((4, 3), np.float32))
    m.results_of(m.node("Scan", [zeros, "x"], 2, body=along, num_scan_inputs=1, scan_input_axes=[2], scan_output_axes=[-1]))

    # total += x[i], and each total is an output; this loop is inside of another one.
    inner = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Add", ["total", "row"], ["more"]),
            helper.make_node("Identity", ["more"], ["kept"]),
            helper.make_node("Identity", ["on"], ["goes_on"]),
        ],
        "inner",
        [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("total", [3, 2])],
        [info("goes_on", [], TensorProto.BOOL), info("more", [3, 2]), info("kept", [3, 2])],
    )
    four = m.tensor(np.array(4, np.int64))
    outer = helper.make_graph(
        [
            helper.make_node("Loop", [four, "", "value"], ["summed", "rows"], body=inner),
            helper.make_node("Mul", ["summed", "limit"], ["result"]),
            helper.make_node("ReduceMean", ["rows"], ["mean"], keepdims=0),
            helper.make_node("Identity", ["cond"], ["same"]),
        ],
        "outer",
        [info("n", [], TensorProto.INT64), info("cond", [], TensorProto.BOOL), info("value", [3, 2])],
        [info("same", [], TensorProto.BOOL), info("result", [3, 2]), info("mean", [])],
    )
    true = m.tensor(np.array(True))
    m.results_of(m.node("Loop", [m.tensor(np.array(3, np.int64)), true, start], 2, body=outer))

    # Doubles a value while it is below the limit, which is an input, but at most ten times.
    early = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("ReduceMax", ["twice"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", "limit"], ["again"]),
        ],
        "early",
        [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("v", [3, 2])],
        [info("again", [], TensorProto.BOOL), info("twice", [3, 2])],
    )
    m.results_of(m.node("Loop", [m.tensor(np.array(10, np.int64)), true, start], 1, body=early))

    # A branch on an input.
    def half(op, name):
        return helper.make_graph([helper.make_node(op, ["x", "limit"], [name])], name, [], [info(name, [4, 3, 2])])

    large = m.node("Greater", ["limit", m.tensor(np.array(1.0, np.float32))], 1)[0]
    m.results_of(m.node("If", [large], 1, then_branch=half("Add", "added"), else_branch=half("Sub", "less")))
    m.write(folder)


if __name__ == "__main__":
    for make in [recurrent, control]:
        make(pathlib.Path(sys.argv[1]))
