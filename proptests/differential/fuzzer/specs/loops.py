"""Generators of recurrent layers, control flow, transforms and windows."""

import numpy as np
from onnx import TensorProto, helper

from ..builder import Skip
from ..graph import code
from ..values import BOOL, F32, F64, I32, I64


def recurrent(op, gates):
    """Returns a generator of a recurrent layer in any direction, with its optional inputs."""
    def step(b):
        rows, batch, width, hidden = b.int(1, 4), b.int(1, 3), b.int(1, 4), b.int(1, 4)
        direction = b.choose(['forward', 'reverse', 'bidirectional'])
        n = 2 if direction == 'bidirectional' else 1
        make = lambda *dims: b.fresh(dims, F32, mood='tame')
        x = make(rows, batch, width)
        w, r = make(n, gates * hidden, width), make(n, gates * hidden, hidden)
        bias = make(n, 2 * gates * hidden) if b.chance(0.6) else ''
        lengths = b.leaf(b.rng.integers(1, rows + 1, batch).astype(I32)) if b.chance(0.3) else ''
        start = make(n, batch, hidden) if b.chance(0.5) else ''
        inputs = [x, w, r, bias, lengths, start]
        outputs, attrs = 2, {}
        if op == 'LSTM':
            inputs += [make(n, batch, hidden) if b.chance(0.5) else '', make(n, 3 * hidden) if b.chance(0.3) else '']
            outputs = 3
        if op == 'GRU':
            attrs['linear_before_reset'] = b.int(0, 1)
        return b.node(op, inputs, outputs, hidden_size=hidden, direction=direction, **attrs)
    return step


def _graph(name, nodes, inputs, outputs, constants=()):
    port = lambda name, dtype, dims: helper.make_tensor_value_info(name, code(dtype), dims)
    return helper.make_graph(nodes, name, [port(*i) for i in inputs], [port(*o) for o in outputs], list(constants))


def branch(b):
    """Adds an If whose branches read a value from outside."""
    x = b.take((F32,), where=lambda v: v.size)
    condition = b.leaf(np.array(b.chance(0.5)), constant=b.chance(0.5))
    fresh = f'b{len(b.env)}'

    def side(mark, ops):
        names = [x] + [f'{fresh}{mark}{i}' for i in range(len(ops))]
        nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(ops)]
        return _graph(f'{fresh}{mark}', nodes, [], [(names[-1], F32, b.dims(x))])
    ops = lambda: [b.choose(['Neg', 'Abs', 'Relu', 'Floor', 'Identity', 'Sqrt']) for _ in range(b.int(1, 2))]
    return b.node('If', [condition], captures=[x], then_branch=side('t', ops()), else_branch=side('e', ops()))


def loop(b):
    """Adds a Loop with a carried value and sometimes an output of each step."""
    x = b.take((F32,), where=lambda v: v.size)
    f, dims, scan = f'l{len(b.env)}', b.dims(x), b.chance(0.5)
    op = b.choose(['Add', 'Mul', 'Sub', 'Max'])
    nodes = [helper.make_node('Identity', [f + 'c'], [f + 'd']), helper.make_node(op, [f + 's', x], [f + 't'])]
    outputs = [(f + 'd', BOOL, []), (f + 't', F32, dims)]
    if scan:
        nodes.append(helper.make_node('Neg', [f + 't'], [f + 'u']))
        outputs.append((f + 'u', F32, dims))
    body = _graph(f, nodes, [(f + 'i', I64, []), (f + 'c', BOOL, []), (f + 's', F32, dims)], outputs)
    turns = b.leaf(np.array(b.int(1, 4), I64), constant=True)
    going = b.leaf(np.array(True), constant=True)
    start = b.fresh(dims, F32)
    return b.node('Loop', [turns, going, start], 2 if scan else 1, captures=[x], body=body)


def scan(b):
    """Adds a Scan that combines rows one after the other."""
    rows, width, f = b.int(1, 5), b.int(1, 4), f's{len(b.env)}'
    op = b.choose(['Add', 'Mul', 'Min'])
    nodes = [helper.make_node(op, [f + 's', f + 'x'], [f + 't']), helper.make_node('Abs', [f + 't'], [f + 'y'])]
    body = _graph(f, nodes, [(f + 's', F32, [width]), (f + 'x', F32, [width])], [(f + 't', F32, [width]), (f + 'y', F32, [width])])
    inputs = [b.fresh((width,), F32), b.fresh((rows, width), F32)]
    return b.node('Scan', inputs, 2, body=body, num_scan_inputs=1, scan_input_directions=[b.int(0, 1)], scan_output_directions=[b.int(0, 1)])


def dft(b):
    """Adds a DFT of real or complex signals."""
    batch, n = b.int(1, 2), b.choose([1, 2, 3, 4, 5, 8])
    inverse = b.int(0, 1)
    x = b.fresh((batch, n, 2 if inverse else b.int(1, 2)), F32, mood='tame')
    onesided = 0 if b[x].shape[-1] == 2 else b.int(0, 1)
    if b.opset >= 20:
        return b.node('DFT', [x, '', b.const(1)], inverse=inverse, onesided=onesided)
    return b.node('DFT', [x], axis=1, inverse=inverse, onesided=onesided)


def stft(b):
    """Adds an STFT of real signals with a window."""
    length, frame = b.int(8, 16), b.choose([4, 5, 8])
    x = b.fresh((b.int(1, 2), length, 1), F32, mood='tame')
    window_ = b.fresh((frame,), F32, mood='tame')
    return b.node('STFT', [x, b.const(b.int(1, 4)), window_], onesided=1)


def window(op):
    """Returns a generator of a window function."""
    return lambda b: b.node(op, [b.const(b.int(2, 12))], periodic=b.int(0, 1))


def mel_weights(b):
    """Adds a MelWeightMatrix."""
    numbers = [b.const(b.int(3, 8)), b.const(b.choose([16, 32])), b.const(8000), b.leaf(np.array(0.0, F32), True), b.leaf(np.array(4000.0, F32), True)]
    return b.node('MelWeightMatrix', numbers)


STEPS = {
    'RNN': recurrent('RNN', 1), 'GRU': recurrent('GRU', 3), 'LSTM': recurrent('LSTM', 4), 'If': branch, 'Loop': loop, 'Scan': scan,
    'DFT': dft, 'STFT': stft, 'HannWindow': window('HannWindow'), 'HammingWindow': window('HammingWindow'),
    'BlackmanWindow': window('BlackmanWindow'), 'MelWeightMatrix': mel_weights,
}
