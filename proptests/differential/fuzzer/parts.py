"""Computes composite ops on 16-bit elements as several ops, each rounded to 16 bits, like `--fp exact`."""

import numpy as np

from .rounding import narrow, wide
from .values import BF16, F16, FLOATS


def in_parts(node, env):
    """Returns the result of a composite op whose parts are rounded one by one, or None for other ops and element types."""
    x = env[node.inputs[0]] if node.inputs and node.inputs[0] else None
    if x is None or node.op not in PARTS or x.dtype not in (FLOATS if node.op in POINTWISE_PARTS else (F16, BF16)):
        return None
    rounded = lambda value: wide(narrow(value, x.dtype))
    with np.errstate(all='ignore'):
        return narrow(PARTS[node.op](node, env, wide(x), rounded), x.dtype)


def axes_of(node, env, rank):
    """Returns the axes of a reduction and whether they are kept."""
    axes = node.attrs.get('axes')
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        axes = env[node.inputs[1]].tolist()
    if not axes:
        axes = [] if node.attrs.get('noop_with_empty_axes', 0) else range(rank)
    return {'axis': tuple(axes), 'keepdims': bool(node.attrs.get('keepdims', 1))}


def _mean(node, env, x, rounded):
    over = axes_of(node, env, x.ndim)
    total = rounded(x.sum(**over))
    return total / (x.size / max(total.size, 1))


def _norm(node, env, x, rounded):
    return np.sqrt(rounded(rounded(x * x).sum(**axes_of(node, env, x.ndim))))


def _squares(node, env, x, rounded):
    return rounded(x * x).sum(**axes_of(node, env, x.ndim))


def _log_sum(node, env, x, rounded):
    return np.log(rounded(x.sum(**axes_of(node, env, x.ndim))))


def _log_sum_exp(node, env, x, rounded):
    over = axes_of(node, env, x.ndim)
    most = x.max(**{**over, 'keepdims': True})
    most = np.where(np.isinf(most), 0, most)
    total = rounded(rounded(np.exp(rounded(x - most))).sum(**over))
    return rounded(np.log(total)) + most.reshape(total.shape)


def _gemm(node, env, x, rounded):
    a = x.T if node.attrs.get('transA', 0) else x
    b = wide(env[node.inputs[1]])
    product = rounded(a @ (b.T if node.attrs.get('transB', 0) else b))
    alpha, beta = (wide(narrow(np.float64(np.float32(node.attrs.get(k, 1.0))), env[node.inputs[0]].dtype)) for k in ('alpha', 'beta'))
    scaled = product if alpha == 1 else rounded(product * alpha)
    if len(node.inputs) < 3 or not node.inputs[2] or beta == 0:
        return scaled
    bias = wide(env[node.inputs[2]])
    return scaled + (bias if beta == 1 else rounded(bias * beta))


def _mish(node, env, x, rounded):
    return x * rounded(np.tanh(rounded(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))))


def _swish(node, env, x, rounded):
    inner = rounded(x * float(np.float32(node.attrs.get('alpha', 1.0))))
    e = np.exp(-np.abs(inner))
    return x * rounded(np.where(inner >= 0, 1 / (1 + e), e / (1 + e)))


# Pointwise ops of several functions. A part can be subnormal, and so inaccurate, where the result is not, in each float
# type.
POINTWISE_PARTS = {'Mish': _mish, 'Swish': _swish}

PARTS = POINTWISE_PARTS | {
    'ReduceMean': _mean, 'ReduceL2': _norm, 'ReduceSumSquare': _squares, 'ReduceLogSum': _log_sum,
    'ReduceLogSumExp': _log_sum_exp, 'Gemm': _gemm,
}
