"""Independent references: each node alone in NumPy, in ONNX Runtime without optimisation, or in ONNX's reference evaluator."""

import warnings
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, TensorProto
from onnx.reference import ReferenceEvaluator

from . import own, pointwise
from .facts import SUM, rounding
from .graph import model
from .known import either_is_right, order
from .padding import explicit
from .resizing import without_unread
from .rounding import narrow
from .values import BF16, F16, F32, F64, is_float

warnings.filterwarnings('ignore')
onnxruntime.set_default_logger_severity(4)


class Unable(Exception):
    """No reference computes this node."""


def _options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


class References:
    """Evaluates nodes. Keeps the session of each node and set of shapes until `forget`."""

    def __init__(self):
        self.options = _options()
        self.sessions = {}
        self.stated = {}
        self.refused = set()

    def forget(self):
        """Drops the sessions of the last graph."""
        self.sessions.clear()
        self.stated.clear()

    def run(self, node, env, opset, native=False, other=False):
        """Returns the outputs of a node. They are computed in float64 if a reference can, unless `native` is set.

        With `other`, uses the second reference first for ops for which it is enough to agree with one.
        """
        args = [env[name] if name else None for name in node.inputs]
        if args and args[0] is not None and all(a is not None for a in args[:1]):
            result = pointwise.compute(node, args) if not node.captures else None
            if result is not None:
                return [np.asarray(result)]
        if node.op in own.OPS and not (native and node.op in own.ALSO_NATIVE):
            result = own.OPS[node.op](node, args, opset)
            if result is not None:
                return result
        results = self._elsewhere(node, env, opset, native, other and bool(either_is_right(node)))
        if node.op in ('Resize', 'Upsample'):
            again = lambda node, env: self.run(node, env, opset, native, other)
            results = [without_unread(again, node, env, results[0], loose=native)]
        return results

    def _elsewhere(self, node, env, opset, native, other):
        """Evaluates a node with ONNX Runtime or the reference evaluator, in an order that avoids known faults."""
        values = {name: env[name] for name in node.reads()}
        node = self._explicit(node, values)
        low = next((v.dtype for v in values.values() if v.dtype in (F16, BF16)), None)
        has_graph = any(isinstance(v, GraphProto) for v in node.attrs.values())
        if has_graph and low is not None:
            raise Unable('16-bit values in a subgraph')
        widths = [F32] if native or has_graph or rounding(node.op) != SUM else [F64, F32]
        problems = []
        for provider in order(node, values)[::-1 if other else 1]:
            for width in widths:
                try:
                    return self._at_width(provider, node, values, opset, width, low)
                except Exception as problem:  # A reference may raise any exception.
                    problems.append(f'{provider}: {str(problem)[:150]}')
        raise Unable('; '.join(problems) or 'all references are wrong for this node')

    def _explicit(self, node, values):
        """Returns a node with explicit padding. Returns the same one at each call, because sessions are kept by node."""
        key = id(node), values[node.inputs[0]].shape if node.inputs and node.inputs[0] else ()
        if key not in self.stated:
            self.stated[key] = explicit(node, values), node
        return self.stated[key][0]

    def _at_width(self, provider, node, values, opset, width, low):
        narrowed = {F16, BF16} | ({F32} if width == F64 else set())
        if width == F64 and not any(v.dtype in narrowed for v in values.values()):
            width, narrowed = F32, {F16, BF16}
        given = {k: v.astype(width) if v.dtype in narrowed else v for k, v in values.items()}
        outputs = self._ask(provider, node, given, opset)
        if low is None and width == F32:
            return outputs
        to = low if low is not None else next((v.dtype for v in values.values() if is_float(v.dtype)), F32)
        return [narrow(y, to) if y is not None and y.dtype == width else y for y in outputs]

    def _ask(self, provider, node, values, opset):
        types = tuple(sorted((name, v.dtype.name, v.shape) for name, v in values.items()))
        kinds = (provider, node.op, tuple(sorted({v.dtype.name for v in values.values()})))
        if kinds in self.refused:
            raise Unable('not implemented for these types')
        key = (provider, id(node), types)
        if key not in self.sessions:
            self.sessions[key] = (self._open(provider, node, values, opset, kinds), node)
        outputs = self.sessions[key][0].run([name for name in node.outputs if name], values)
        named = iter(outputs)
        outputs = [np.asarray(next(named)) if name else None for name in node.outputs]
        first = next(iter(values.values()), None)
        if provider == 'reference' and node.op.startswith('Reduce') and first.dtype.kind in 'iu':
            # NumPy sums in int64. The sum in the element type wraps in the same way.
            return [y.astype(first.dtype) for y in outputs]
        return outputs

    def _open(self, provider, node, values, opset, kinds):
        if provider == 'reference' and node.op == 'GridSample':
            # The evaluator knows only the names of op set 20. Nothing else has changed.
            named = {'bicubic': 'cubic', 'bilinear': 'linear'}
            node = replace(node, attrs={**node.attrs, 'mode': named.get(node.attrs.get('mode'), node.attrs.get('mode', 'linear'))})
            opset = max(opset, 20)
        proto = onnx.NodeProto.FromString(node.proto().SerializeToString())
        made = model([proto], [(k, v.dtype, v.shape) for k, v in values.items()], [], [], opset)
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.outputs if name)
        if provider == 'reference':
            for output in made.graph.output:
                output.type.tensor_type.elem_type = TensorProto.FLOAT
            return ReferenceEvaluator(made)
        try:
            return onnxruntime.InferenceSession(made.SerializeToString(), self.options, providers=['CPUExecutionProvider'])
        except Exception as problem:
            if 'NOT_IMPLEMENTED' in str(problem) or 'Type Error' in str(problem) or 'TypeInferenceError' in str(problem):
                self.refused.add(kinds)
            raise
