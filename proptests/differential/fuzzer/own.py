"""References of our own, in NumPy, where both of the others are wrong or do not say."""

import numpy as np

from .rounding import narrow
from .values import F32, F64, is_float


def ranking(node, args, opset):
    """Computes ArgMax, ArgMin and Hardmax as NumPy does: NaN wins, and of several the first."""
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
    """Computes QuantizeLinear and DequantizeLinear as the specification says, in float32."""
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
        # The quotient is rounded to float32 once; the sum with the zero point is exact where it is kept.
        number = np.rint((x / along(args[1])).astype(F32)).astype(F64)
        number = number + (along(zero).astype(F64) if zero is not None else 0.0)
        info = np.iinfo(to)
        return [np.asarray(np.clip(np.nan_to_num(number, nan=0.0), info.min, info.max)).astype(to)]


def over_all(node, args, opset):
    """Computes GlobalMaxPool and GlobalAveragePool: the reference evaluator drops an axis of rows of three dims."""
    x = args[0].astype(F64)
    how = np.max if node.op == 'GlobalMaxPool' else np.mean
    with np.errstate(all='ignore'):
        return [narrow(how(x, axis=tuple(range(2, x.ndim)), keepdims=True), args[0].dtype)]


def attention(node, args, opset):
    """Computes Attention of op set 23 on operands of four axes: a masked key is not read, and a row without keys is zero."""
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
        total = weights.sum(-1, keepdims=True)
        weights = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))
        read = np.where(keep[..., None], weights[..., None] * value[:, :, None], 0)
    return [narrow(read.sum(-2), args[0].dtype)]


def masked_product(a, b):
    """Returns a matrix product in which a zero on the left leaves its row of the right side out."""
    a, b = a.astype(F64), b.astype(F64)
    with np.errstate(all='ignore'):
        terms = a[..., None] * b[..., None, :, :]
        return np.where(a[..., None] == 0, 0, terms).sum(-2)


OPS = {
    'ArgMax': ranking, 'ArgMin': ranking, 'Hardmax': ranking, 'QuantizeLinear': quantised, 'DequantizeLinear': quantised,
    'GlobalMaxPool': over_all, 'GlobalAveragePool': over_all, 'Attention': attention,
}
