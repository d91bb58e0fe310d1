"""Generators of reads and writes by index, of rankings and of cumulative ops."""

import numpy as np

from ..builder import MOST, Skip
from ..values import BOOL, F32, F64, FLOATS, I8, I32, I64, INTS, TYPES, U8, is_float


def ids(b, shape, extent, dtype=None, negative=True):
    """Adds ids within an extent. Negative ids count from the end."""
    if extent == 0 and np.prod(shape, dtype=int):
        raise Skip
    low = -extent if negative and b.chance(0.5) else 0
    drawn = b.rng.integers(low, max(extent, 1), shape)
    return b.leaf(np.asarray(drawn).astype(dtype or b.choose([I64, I64, I32])))


def gather(b):
    """Adds a Gather."""
    x = b.take(TYPES, range(1, 5))
    axis = b.axis(b.rank(x))
    shape = b.shape(b.int(0, 2))
    if b[x].size * np.prod(shape, dtype=int) > MOST:
        raise Skip
    return b.node('Gather', [x, ids(b, shape, b.dims(x)[axis])], axis=axis)


def gather_elements(b):
    """Adds a GatherElements. The ids may have smaller extents on other axes."""
    x = b.take(TYPES, range(1, 5))
    axis = b.axis(b.rank(x))
    shape = [b.int(min(d, 1), d) for d in b.dims(x)]
    shape[axis] = b.int(0, 5) if b.dims(x)[axis] else 0
    return b.node('GatherElements', [x, ids(b, shape, b.dims(x)[axis])], axis=axis)


def coordinates(b, dims, shape):
    """Draws coordinates within dims. The last axis of `shape` has their number."""
    if 0 in dims:
        raise Skip
    drawn = np.stack([b.rng.integers(-d if b.chance(0.4) else 0, d, shape[:-1]) for d in dims], -1) if dims else np.zeros(shape)
    return np.asarray(drawn).astype(I64)


def gather_nd(b):
    """Adds a GatherND with or without batch axes."""
    x = b.take(TYPES, range(1, 5), where=lambda v: v.size)
    batch = b.int(0, b.rank(x) - 1) if b.opset >= 12 and b.chance(0.4) else 0
    depth = b.int(1, b.rank(x) - batch)
    shape = (*b.dims(x)[:batch], *b.shape(b.int(0, 1)), depth)
    at = coordinates(b, b.dims(x)[batch:batch + depth], shape)
    return b.node('GatherND', [x, b.leaf(at)], batch_dims=batch if b.opset >= 12 else None)


def extremum(op):
    """Returns a generator of the position of an extremum."""
    def step(b):
        x = b.take(FLOATS + (I32, I64, I8, U8), range(1, 6), where=lambda v: v.size)
        last = b.int(0, 1) if b.opset >= 12 and b.chance(0.4) else None
        return b.node(op, [x], axis=b.axis(b.rank(x)), keepdims=b.int(0, 1), select_last_index=last)
    return step


def hardmax(b):
    """Adds a Hardmax."""
    x = b.take(FLOATS, range(1, 5), where=lambda v: v.size)
    return b.node('Hardmax', [x], axis=b.axis(b.rank(x)))


def one_hot(b):
    """Adds a OneHot. Ids may be out of range, in which case they set no element."""
    depth = b.int(1, 7)
    at = b.leaf(b.rng.integers(-depth - 2, depth + 3, b.shape(b.int(0, 2))).astype(b.choose([I64, I32])))
    on_off = b.fresh((2,), b.dtype((F32, F64, I64, I32)))
    return b.node('OneHot', [at, b.const(depth), on_off], axis=b.choose([-1, 0, b.rank(at)]))


def top_k(b):
    """Adds a sorted TopK of the largest or the smallest elements. Equal elements keep their order."""
    x = b.take((F32, F64, I64, I32), range(1, 5), where=lambda v: not is_float(v.dtype) or not np.isnan(v.astype(float)).any())
    axis = b.axis(b.rank(x))
    k = b.int(0, b.dims(x)[axis])
    largest = b.int(0, 1) if b.opset >= 11 else None
    return b.node('TopK', [x, b.const([k])], 2, axis=axis, largest=largest)


def scatter_elements(op):
    """Returns a generator of ScatterElements (or of Scatter, its old name)."""
    def step(b):
        if op == 'Scatter' and b.opset > 10:
            raise Skip
        x = b.take(FLOATS + (I64, I32), range(1, 4), where=lambda v: v.size)
        axis = b.axis(b.rank(x))
        shape = [b.int(1, d) for d in b.dims(x)]
        how = b.choose([None, 'none', 'add', 'mul'] + (['max', 'min'] if b.opset >= 18 else [])) if b.opset >= 16 and op != 'Scatter' else None
        if how in (None, 'none'):
            # ONNX does not say which of several writes to one position counts, so each position is written once.
            order = np.argsort(b.rng.random([*shape[:axis % len(shape)], b.dims(x)[axis], *shape[axis % len(shape) + 1:]]), axis=axis)
            at = b.leaf(np.take(order, np.arange(shape[axis]), axis=axis).astype(I64))
        else:
            at = ids(b, shape, b.dims(x)[axis], I64)
        return b.node(op, [x, at, b.fresh(shape, b[x].dtype)], axis=axis, reduction=how)
    return step


def scatter_nd(b):
    """Adds a ScatterND."""
    x = b.take(FLOATS + (I64, I32), range(1, 4), where=lambda v: v.size)
    depth = b.int(1, b.rank(x))
    dims = b.dims(x)[:depth]
    how = b.choose([None, 'add', 'mul'] + (['max', 'min'] if b.opset >= 18 else [])) if b.opset >= 16 else None
    count = b.int(1, min(int(np.prod(dims)), 5))
    flat = b.rng.choice(int(np.prod(dims)), count, replace=how is not None)
    at = np.stack(np.unravel_index(flat, dims), -1).astype(I64)
    return b.node('ScatterND', [x, b.leaf(at), b.fresh((count, *b.dims(x)[depth:]), b[x].dtype)], reduction=how)


def tensor_scatter(b):
    """Adds a TensorScatter, which writes rows of a cache. Rows may wrap around."""
    batch, length, width = b.int(1, 3), b.int(1, 6), b.int(1, 4)
    rows, mode = b.int(1, length), b.choose(['linear', 'circular'])
    dtype = b.dtype((F32,))
    cache, update = b.fresh((batch, length, width), dtype), b.fresh((batch, rows, width), dtype)
    at = b.rng.integers(0, length if mode == 'circular' else length - rows + 1, batch).astype(I64)
    return b.node('TensorScatter', [cache, update, b.leaf(at)], mode=mode, axis=1)


def cumulative(op):
    """Returns a generator of CumSum or CumProd."""
    def step(b):
        x = b.take((F32, F64, I32, I64) if op == 'CumSum' else (F32, F64), range(1, 5))
        return b.node(op, [x, b.const(b.axis(b.rank(x)))], exclusive=b.int(0, 1), reverse=b.int(0, 1))
    return step


def quantize(b):
    """Adds a QuantizeLinear with common scales, for the whole tensor or along an axis."""
    x = b.take((F32,), where=lambda v: v.size)
    axis, scale = scales(b, x)
    zero = b.choose(['i8', 'u8', ''])
    if zero:
        zero = b.leaf(b.rng.integers(0, 100, b.dims(scale)).astype(I8 if zero == 'i8' else U8))
    return b.node('QuantizeLinear', [x, scale, zero], axis=axis)


def scales(b, x):
    """Draws scales and returns the axis and the name of the scales."""
    pool = [0.1, 0.3, 0.5, 1.0, 2.0, 1 / 255, 0.02, 0.007, 7.0]
    along = b.rank(x) >= 1 and b.opset >= 13 and b.chance(0.4)
    axis = b.axis(b.rank(x)) if along else None
    shape = (b.dims(x)[axis],) if along else b.choose([(), ()])
    return axis, b.leaf(np.asarray(b.rng.choice(pool, shape)).astype(F32))


def dequantize(b):
    """Adds a DequantizeLinear."""
    x = b.take((I8, U8), where=lambda v: v.size)
    axis, scale = scales(b, x)
    zero = b.leaf(b.rng.integers(0, 100, b.dims(scale)).astype(b[x].dtype)) if b.chance(0.7) else ''
    return b.node('DequantizeLinear', [x, scale, zero], axis=axis)


STEPS = {
    'Gather': gather, 'GatherElements': gather_elements, 'GatherND': gather_nd, 'ArgMax': extremum('ArgMax'), 'ArgMin': extremum('ArgMin'),
    'Hardmax': hardmax, 'OneHot': one_hot, 'TopK': top_k, 'Scatter': scatter_elements('Scatter'),
    'ScatterElements': scatter_elements('ScatterElements'), 'ScatterND': scatter_nd, 'TensorScatter': tensor_scatter,
    'CumSum': cumulative('CumSum'), 'CumProd': cumulative('CumProd'), 'QuantizeLinear': quantize, 'DequantizeLinear': dequantize,
}
