"""Graphs under test: nodes with the values that they read, and their ONNX form, for one graph or many in a file."""

from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .values import BF16

IR_VERSION = 10


@dataclass
class Node:
    """A node of a graph; `captures` names the outer values that its subgraphs read."""
    op: str
    inputs: list
    outputs: list
    attrs: dict = field(default_factory=dict)
    captures: list = field(default_factory=list)

    def reads(self):
        """Returns the names of all values that the node reads, without repetitions."""
        return list(dict.fromkeys(name for name in [*self.inputs, *self.captures] if name))

    def proto(self, prefix=''):
        """Returns the ONNX node, with a prefix on each name."""
        named = lambda names: [prefix + name if name else '' for name in names]
        attrs = {k: prefixed(v, prefix) if isinstance(v, onnx.GraphProto) else v for k, v in self.attrs.items()}
        node = helper.make_node(self.op, named(self.inputs), named(self.outputs), **attrs)
        node.name = prefix + self.outputs[0]
        return node


@dataclass
class Case:
    """A graph with its inputs and constants. Nodes are in order of evaluation."""
    opset: int
    inputs: dict
    constants: dict
    nodes: list
    outputs: list

    def leaves(self):
        """Returns the inputs and constants, which no node computes."""
        return {**self.inputs, **self.constants}

    def pruned(self):
        """Returns the case with only the nodes and values that its outputs need."""
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.outputs):
                kept.append(node)
                wanted |= set(node.reads())
        inputs = {k: v for k, v in self.inputs.items() if k in wanted}
        constants = {k: v for k, v in self.constants.items() if k in wanted}
        return replace(self, inputs=inputs, constants=constants, nodes=kept[::-1])

    def text(self):
        """Returns the graph as one line."""
        shown = lambda name: name if name else '_'
        parts = []
        for node in self.nodes:
            attrs = ', '.join(f'{k}={brief(v)}' for k, v in node.attrs.items())
            args = ', '.join(self.leaf_text(name) for name in node.inputs)
            parts.append(f"{','.join(map(shown, node.outputs))} = {node.op}({args}{'; ' + attrs if attrs else ''})")
        return '; '.join(parts) + f" → {', '.join(self.outputs)} (opset {self.opset})"

    def leaf_text(self, name):
        """Returns the name of a leaf, with its value if it is small."""
        value = self.leaves().get(name)
        if value is None:
            return name or '_'
        kind = 'const ' if name in self.constants else ''
        shown = np.array2string(value.astype(float) if value.dtype == BF16 else value, separator=',', threshold=8, precision=9)
        return f"{name}:{kind}{value.dtype}{list(value.shape)}" + (f"={' '.join(shown.split())}" if value.size <= 8 else '')


def brief(value):
    """Returns an attribute as a short text."""
    if isinstance(value, onnx.GraphProto):
        return '{' + ' '.join(node.op_type for node in value.node) + '}'
    if isinstance(value, TensorProto):
        return str(numpy_helper.to_array(value).tolist())
    return value.decode() if isinstance(value, bytes) else str(value)


def prefixed(graph, prefix):
    """Returns a subgraph with a prefix on each of its names."""
    if not prefix:
        return graph
    graph = onnx.GraphProto.FromString(graph.SerializeToString())
    for port in [*graph.input, *graph.output, *graph.initializer]:
        port.name = prefix + port.name
    for node in graph.node:
        node.input[:] = [prefix + name if name else '' for name in node.input]
        node.output[:] = [prefix + name if name else '' for name in node.output]
        node.name = prefix + node.output[0]
    return graph


def union(cases):
    """Returns one case of several that share no value, with a prefix on each name."""
    whole = Case(cases[0].opset, {}, {}, [], [])
    for at, case in enumerate(cases):
        prefix = f'c{at}'
        named = lambda names: [prefix + name if name else '' for name in names]
        whole.inputs.update({prefix + k: v for k, v in case.inputs.items()})
        whole.constants.update({prefix + k: v for k, v in case.constants.items()})
        whole.outputs += named(case.outputs)
        for node in case.nodes:
            attrs = {k: prefixed(v, prefix) if isinstance(v, onnx.GraphProto) else v for k, v in node.attrs.items()}
            whole.nodes.append(Node(node.op, named(node.inputs), named(node.outputs), attrs, named(node.captures)))
    return whole


def code(dtype):
    """Returns ONNX's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def stored(name, value):
    """Returns a tensor that is stored in the file."""
    value = np.ascontiguousarray(value).reshape(value.shape)
    return helper.make_tensor(name, code(value.dtype), value.shape, value.tobytes(), raw=True)


def model(nodes, inputs, constants, outputs, opset):
    """Returns an ONNX model. Inputs and outputs are given as (name, element type, shape or None)."""
    port = lambda name, dtype, dims: helper.make_tensor_value_info(name, code(dtype), dims)
    graph = helper.make_graph(nodes, 'g', [port(*i) for i in inputs], [port(*o) for o in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=IR_VERSION)


def merged(cases, types):
    """Returns one model of many cases, the arrays of its inputs, and the outputs (case, name, name in the file).

    Names get the prefix `gK_`. `.npy` files have no bfloat16, so that inputs and outputs of it pass as float32.
    `types` holds the element type of each value of each case.
    """
    nodes, inputs, arrays, constants, outputs, results = [], [], {}, [], [], []
    for at, case in enumerate(cases):
        prefix = f'g{at}_'
        for name, value in case.inputs.items():
            given = prefix + name
            if value.dtype == BF16:
                given += '_f32'
                nodes.append(helper.make_node('Cast', [given], [prefix + name], to=TensorProto.BFLOAT16, name=prefix + name))
                value = value.astype(np.float32)
            inputs.append((given, value.dtype, value.shape))
            arrays[given] = value
        constants += [stored(prefix + name, value) for name, value in case.constants.items()]
        nodes += [node.proto(prefix) for node in case.nodes]
        for name in case.outputs:
            given, dtype = prefix + name, types[at][name]
            if dtype == BF16:
                nodes.append(helper.make_node('Cast', [given], [given + '_f32'], to=TensorProto.FLOAT, name=given + '_f32'))
                given, dtype = given + '_f32', np.dtype('float32')
            outputs.append((given, dtype, None))
            results.append((at, name, given))
    return model(nodes, inputs, constants, outputs, cases[0].opset), arrays, results
