"""Computes recurrent layers in float64. ONNX Runtime approximates their functions with errors up to 3·10⁻⁵."""

import numpy as np

from .rounding import narrow
from .values import F64


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _rnn(node, x, h, c, w, r, wb, rb, p):
    """Returns the state after a step of RNN."""
    return np.tanh(x @ w.T + h @ r.T + wb + rb), c


def _gru(node, x, h, c, w, r, wb, rb, p):
    """Returns the state after a step of GRU. The gates are update, reset and hidden."""
    wz, wr, wh = np.split(w, 3)
    rz, rr, rh = np.split(r, 3)
    wbz, wbr, wbh = np.split(wb, 3)
    rbz, rbr, rbh = np.split(rb, 3)
    update = _sigmoid(x @ wz.T + h @ rz.T + wbz + rbz)
    reset = _sigmoid(x @ wr.T + h @ rr.T + wbr + rbr)
    if node.attrs.get('linear_before_reset', 0):
        hidden = np.tanh(x @ wh.T + reset * (h @ rh.T + rbh) + wbh)
    else:
        hidden = np.tanh(x @ wh.T + (reset * h) @ rh.T + rbh + wbh)
    return (1 - update) * hidden + update * h, c


def _lstm(node, x, h, c, w, r, wb, rb, p):
    """Returns the states after a step of LSTM. The gates are input, output, forget and cell."""
    i, o, f, g = np.split(x @ w.T + h @ r.T + wb + rb, 4, axis=-1)
    pi, po, pf = np.split(p, 3)
    i, f = _sigmoid(i + pi * c), _sigmoid(f + pf * c)
    c = f * c + i * np.tanh(g)
    return _sigmoid(o + po * c) * np.tanh(c), c


STEP = {'RNN': (_rnn, 1), 'GRU': (_gru, 3), 'LSTM': (_lstm, 4)}
KNOWN = {'hidden_size', 'direction', 'linear_before_reset'}


def layer(node, args, opset):
    """Computes RNN, GRU and LSTM with their default functions, or returns None for unknown attributes."""
    if set(node.attrs) - KNOWN:
        return None
    step, gates = STEP[node.op]
    given = [a.astype(F64) if a is not None and a.dtype.kind == 'f' else a for a in args] + [None] * (8 - len(args))
    x, w, r, bias, lengths, start, cell, peephole = given
    rows, batch, _ = x.shape
    ways, hidden = r.shape[0], r.shape[2]
    zeros = np.zeros((ways, batch, hidden))
    bias = np.zeros((ways, 2 * gates * hidden)) if bias is None else bias
    peephole = np.zeros((ways, 3 * hidden)) if peephole is None else peephole
    lengths = np.full(batch, rows) if lengths is None else lengths
    states, cells = (zeros if start is None else start).copy(), (zeros if cell is None else cell).copy()
    y = np.zeros((rows, ways, batch, hidden))
    with np.errstate(all='ignore'):
        for way in range(ways):
            back = node.attrs.get('direction', 'forward') == 'reverse' or way == 1
            for n in range(batch):
                h, c = states[way, n], cells[way, n]
                order = range(int(lengths[n]))
                for t in reversed(order) if back else order:
                    wb, rb = np.split(bias[way], 2)
                    h, c = step(node, x[t, n], h, c, w[way], r[way], wb, rb, peephole[way])
                    y[t, way, n] = h
                states[way, n], cells[way, n] = h, c
    results = [y, states, cells][:len(node.outputs)]
    return [narrow(value, args[0].dtype) if name else None for name, value in zip(node.outputs, results)]
