"""References in NumPy, for cases in which both other references are wrong or do not define the result."""

import numpy as np
from onnx import helper

from . import padding, recurrent
from .parts import axes_of
from .rounding import narrow
from .values import F32, F64, is_float


def ranking(node, args, opset):
    """Computes ArgMax, ArgMin and Hardmax like NumPy: NaN is the extremum, and the first of equal elements counts."""
    if node.op in ('ArgMax', 'ArgMin'):
        x, axis = args[0], node.attrs.get('axis', 0)
        x = x.astype(F64) if is_float(x.dtype) else x
        best = np.argmax if node.op == 'ArgMax' else np.argmin
        if node.attrs.get('select_last_index', 0):
            flipped = best(np.flip(x, axis), axis=axis)
            found = x.shape[axis] - 1 - flipped
        else:
            found = best(x, axis=axis)
        found = np.asarray(found, np.int64)
        return [np.expand_dims(found, axis) if node.attrs.get('keepdims', 1) else found]
    if node.op == 'Hardmax' and opset >= 13:
        x, axis = args[0], node.attrs.get('axis', -1)
        found = np.expand_dims(np.argmax(x.astype(F64), axis=axis), axis)
        at = np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
        return [(at == found).astype(x.dtype)]
    return None


def quantised(node, args, opset):
    """Computes QuantizeLinear and DequantizeLinear in float32, like the specification."""
    if args[1].dtype != F32:
        return None
    x, axis = args[0], node.attrs.get('axis', 1)
    column = [-1 if i == axis % max(x.ndim, 1) else 1 for i in range(x.ndim)]
    along = lambda p: p.reshape(column) if p.size > 1 else p.reshape(())
    zero = args[2] if len(args) > 2 and args[2] is not None else None
    with np.errstate(all='ignore'):
        if node.op == 'DequantizeLinear':
            shifted = x.astype(F32) - (along(zero).astype(F32) if zero is not None else F32.type(0))
            return [np.asarray(shifted * along(args[1]), F32)]
        to = zero.dtype if zero is not None else np.dtype(np.uint8)
        # The quotient is rounded to float32 once. The sum with the zero point is exact in the range of the result.
        number = np.rint((x / along(args[1])).astype(F32)).astype(F64)
        number = number + (along(zero).astype(F64) if zero is not None else 0.0)
        info = np.iinfo(to)
        return [np.asarray(np.clip(np.nan_to_num(number, nan=0.0), info.min, info.max)).astype(to)]


def over_all(node, args, opset):
    """Computes GlobalMaxPool and GlobalAveragePool. The reference evaluator drops an axis of rows with three dims."""
    x = args[0].astype(F64)
    how = np.max if node.op == 'GlobalMaxPool' else np.mean
    with np.errstate(all='ignore'):
        return [narrow(how(x, axis=tuple(range(2, x.ndim)), keepdims=True), args[0].dtype)]


# Attention replaces weights below this by 0.
LEAST_WEIGHT = float(np.exp(-86.5))
# A softmax replaces a weight by 0 if the key is this far below the largest: −87, or −708 in float64, plus rounding.
LEAST_LOGARITHM = {F64: -707.9}


def without_light(node, weights, env, opset, exp):
    """Returns softmax weights with those that the contract allows to be 0 set to 0. `exp` names e before the division, if known."""
    y = weights.astype(F64)
    if exp is not None:
        e = env[exp].astype(F64)
    else:
        e = y / np.maximum(y.max(_row(node, y.ndim, opset), keepdims=True, initial=0), np.finfo(F64).tiny)
    return np.where(e < np.exp(LEAST_LOGARITHM.get(weights.dtype, -86.9)), 0, y).astype(weights.dtype)


def _row(node, rank, opset):
    """Returns the axes over which a Softmax sums."""
    axis = node.attrs.get('axis', -1 if opset >= 13 else 1) % max(rank, 1)
    return axis if opset >= 13 else tuple(range(axis, rank))


def light_weights(node, args, opset):
    """Computes Attention in which weights below e⁻⁸⁷ are zero, which the contract allows."""
    return attention(node, args, opset, LEAST_WEIGHT)


def attention(node, args, opset, least=0.0):
    """Computes Attention of op set 23 on operands of four axes. Masked keys are not read, and rows without keys are zero.

    Weights below `least` are zeros.
    """
    if len(args) > 4 or args[0].ndim != 4 or node.attrs.get('qk_matmul_output_mode') or len(node.outputs) > 1:
        return None
    query, key, value = (a.astype(F64) for a in args[:3])
    mask = args[3] if len(args) > 3 else None
    repeats = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, repeats, 1), np.repeat(value, repeats, 1)
    rows, keys_ = query.shape[2], key.shape[2]
    keep = np.ones((rows, keys_), bool)
    if node.attrs.get('is_causal', 0):
        keep = np.tril(keep)
    with np.errstate(all='ignore'):
        scores = query @ key.swapaxes(2, 3) * node.attrs.get('scale', query.shape[3] ** -0.5)
        if node.attrs.get('softcap', 0.0):
            scores = node.attrs['softcap'] * np.tanh(scores / node.attrs['softcap'])
        if mask is not None and mask.dtype == bool:
            keep = keep & mask
        elif mask is not None:
            keep = keep & (mask != -np.inf)
            scores = scores + mask.astype(F64)
        keep = np.broadcast_to(keep, scores.shape)
        scores = np.where(keep, scores, -np.inf)
        top = np.max(scores, -1, keepdims=True)
        weights = np.where(keep, np.exp(scores - np.where(np.isinf(top) & (top < 0), 0, top)), 0)
        weights = np.where(weights < least, 0, weights)
        total = weights.sum(-1, keepdims=True)
        weights = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))
        read = np.where(keep[..., None], weights[..., None] * value[:, :, None], 0)
    return [narrow(read.sum(-2), args[0].dtype)]


# The largest score that is added to a bias that hides its key. The sum is the bias.
SCORES = 2.0**92
# A bias below this hides its key, because adding a score does not change it.
HIDES = {F64: -2.0**146}


def hidden(scores, bias):
    """Returns the sum of scores and a bias in which hidden keys are not read: the bias replaces scores beyond 2⁹² and NaN."""
    with np.errstate(all='ignore'):
        total = scores + bias
    bias = np.broadcast_to(bias, total.shape)
    hides = bias <= HIDES.get(bias.dtype, -2.0**117)
    return np.where(hides & ~(np.abs(np.broadcast_to(scores, total.shape)) <= SCORES), bias, total).astype(total.dtype)


def masked_product(a, b):
    """Returns a matrix product in which a zero on the left skips its row on the right."""
    a, b = a.astype(F64), b.astype(F64)
    with np.errstate(all='ignore'):
        terms = a[..., None] * b[..., None, :, :]
        return np.where(a[..., None] == 0, 0, terms).sum(-2)


def log_sum_exp(node, args, opset):
    """Computes ReduceLogSumExp in float64. The references subtract an infinite maximum from itself."""
    x = args[0].astype(F64)
    over = axes_of(node, dict(zip(node.inputs, args)), x.ndim)
    most = np.max(np.where(np.isfinite(x), x, -np.inf), **{**over, 'keepdims': True}, initial=-np.inf)
    most = np.where(np.isinf(most), 0, most)
    with np.errstate(all='ignore'):
        total = np.log(np.exp(x - most).sum(**over))
        return [narrow(total + most.reshape(total.shape), args[0].dtype)]


def log_softmax(node, args, opset):
    """Computes LogSoftmax in float64 from differences. The reference takes the logarithm of a weight that may be 0."""
    x = args[0].astype(F64)
    axis = node.attrs.get('axis', -1 if opset >= 13 else 1)
    axis += x.ndim if axis < 0 else 0
    # Before op set 13, this axis and all later ones are treated as one.
    rows = x if opset >= 13 else x.reshape(int(np.prod(x.shape[:axis])), -1)
    over = {'axis': axis if opset >= 13 else 1, 'keepdims': True}
    with np.errstate(all='ignore'):
        below = rows - rows.max(**over, initial=-np.inf)
        return [narrow((below - np.log(np.exp(below).sum(**over))).reshape(x.shape), args[0].dtype)]


def conv_transpose(node, args, opset):
    """Computes a ConvTranspose with SAME whose result extends beyond its windows, so the padding is negative.

    Returns None for others. The references treat negative padding as none, so the extent differs from the one in ONNX.
    """
    edges = padding.transposed(node, [a.shape for a in args[:2]])
    if edges is None:
        return None
    x, w = (a.astype(F64) for a in args[:2])
    groups, (rows, channels), kernel = node.attrs.get('group', 1), x.shape[:2], w.shape[2:]
    ones = [1] * len(kernel)
    strides, dilations = node.attrs.get('strides', ones), node.attrs.get('dilations', ones)
    reach = [s * (n - 1) + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, kernel, dilations)]
    x = x.reshape(rows, groups, channels // groups, *x.shape[2:])
    w = w.reshape(groups, channels // groups, *w.shape[1:])
    full = np.zeros((rows, groups, w.shape[2], *reach))
    with np.errstate(all='ignore'):
        for at in np.ndindex(*kernel):
            places = tuple(slice(i * d, i * d + s * (n - 1) + 1, s) for i, d, s, n in zip(at, dilations, strides, x.shape[3:]))
            full[(..., *places)] += np.einsum('ngc...,gco->ngo...', x, w[(..., *at)])
        full = full.reshape(rows, -1, *reach)
        for axis, (before, after) in enumerate(edges, 2):
            full = np.pad(full, [(max(-before, 0), max(-after, 0)) if i == axis else (0, 0) for i in range(full.ndim)])
            full = full.take(range(max(before, 0), full.shape[axis] - max(after, 0)), axis)
        if len(args) > 2 and args[2] is not None:
            full = full + args[2].astype(F64).reshape(1, -1, *ones)
    return [narrow(full, args[0].dtype)]


def one_hot(node, args, opset):
    """Computes OneHot. Ids that are out of range set no element, and no values are multiplied."""
    ids, depth, values = args[0], int(args[1]), args[2]
    axis = node.attrs.get('axis', -1) % (ids.ndim + 1)
    ids = np.expand_dims(np.where((ids < 0) & (ids >= -depth), ids + depth, ids), axis)
    at = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(ids.ndim)])
    return [np.where(ids == at, values[1], values[0]).astype(values.dtype)]


def eye_like(node, args, opset):
    """Computes EyeLike."""
    code = node.attrs.get('dtype')
    dtype = args[0].dtype if code is None else np.dtype(helper.tensor_dtype_to_np_dtype(code))
    return [np.eye(*args[0].shape, k=node.attrs.get('k', 0)).astype(dtype)]


def local_response(node, args, opset):
    """Computes LRN of an odd size in float64."""
    x, size = args[0].astype(F64), node.attrs['size']
    attr = lambda name, default: float(np.float32(node.attrs.get(name, default)))
    with np.errstate(all='ignore'):
        square = np.pad(x * x, [(0, 0), (size // 2, size // 2)] + [(0, 0)] * (x.ndim - 2))
        total = sum(square[:, i:i + x.shape[1]] for i in range(size))
        return [narrow(x / (attr('bias', 1.0) + attr('alpha', 1e-4) / size * total) ** attr('beta', 0.75), args[0].dtype)]


def tensor_scatter(node, args, opset):
    """Computes TensorScatter, which writes rows of each cache in a batch from a position on. Rows may wrap around."""
    cache, update = args[0].copy(), args[1]
    axis = node.attrs.get('axis', -2) % cache.ndim
    starts = args[2] if len(args) > 2 and args[2] is not None else np.zeros(cache.shape[0], int)
    rows = np.arange(update.shape[axis])
    for batch, start in enumerate(starts):
        at = (rows + start) % cache.shape[axis]
        np.moveaxis(cache[batch], axis - 1, 0)[at] = np.moveaxis(update[batch], axis - 1, 0)
    return [cache]


def mean_variance(node, args, opset):
    """Computes MeanVarianceNormalization in float64 from differences to the mean."""
    x, axes = args[0].astype(F64), tuple(node.attrs.get('axes', (0, 2, 3)))
    with np.errstate(all='ignore'):
        centred = x - x.mean(axes, keepdims=True)
        return [narrow(centred / (np.sqrt((centred * centred).mean(axes, keepdims=True)) + 1e-9), args[0].dtype)]


def group_norm(node, args, opset):
    """Computes GroupNormalization of op set 21 in float64, and InstanceNormalization, whose groups are channels."""
    x, scale, bias = (a.astype(F64) for a in args)
    groups = node.attrs.get('num_groups', x.shape[1])
    parts = x.reshape(x.shape[0], groups, -1)
    column = (1, -1) + (1,) * (x.ndim - 2)
    with np.errstate(all='ignore'):
        centred = parts - parts.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        normal = (centred / np.sqrt(variance + float(np.float32(node.attrs.get('epsilon', 1e-5))))).reshape(x.shape)
        return [narrow(normal * scale.reshape(column) + bias.reshape(column), args[0].dtype)]


def int_range(node, args, opset):
    """Computes Range of integers, which ONNX Runtime counts in float64."""
    if is_float(args[0].dtype):
        return None
    values = range(*(int(a) for a in args))
    return [np.array(list(values), args[0].dtype)]


OPS = {
    'Range': int_range,
    'RNN': recurrent.layer, 'GRU': recurrent.layer, 'LSTM': recurrent.layer,
    'GroupNormalization': group_norm, 'InstanceNormalization': group_norm,
    'MeanVarianceNormalization': mean_variance,
    'TensorScatter': tensor_scatter, 'OneHot': one_hot, 'EyeLike': eye_like, 'LRN': local_response,
    'ArgMax': ranking, 'ArgMin': ranking, 'Hardmax': ranking, 'QuantizeLinear': quantised, 'DequantizeLinear': quantised,
    'ReduceLogSumExp': log_sum_exp, 'LogSoftmax': log_softmax, 'ConvTranspose': conv_transpose, 'GlobalMaxPool': over_all, 'GlobalAveragePool': over_all, 'Attention': attention,
}

# float64 hides an overflow of these ops, so the native arithmetic of ONNX Runtime is used too.
ALSO_NATIVE = {'LRN', 'GlobalAveragePool', 'MeanVarianceNormalization', 'GroupNormalization', 'InstanceNormalization'}
