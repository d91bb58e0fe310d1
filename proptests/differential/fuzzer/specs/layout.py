"""Generators of views, of tensors made from shapes, and of slices."""

import numpy as np
from onnx import helper

from ..builder import MOST, Skip
from ..graph import code, stored
from ..values import BOOL, F32, F64, FLOATS, I32, I64, INTS, TYPES


def reshape(b):
    """Adds a Reshape to other factors, with −1 and 0 if they fit."""
    x = b.take(TYPES)
    n = b[x].size
    if n == 0:
        return b.node('Reshape', [x, b.const(b.dims(x))]) if b.opset < 14 else b.node('Reshape', [x, b.const([0, 3])], allowzero=1)
    dims, rest = [], n
    while rest > 1 and len(dims) < 4:
        factors = [f for f in range(2, rest + 1) if rest % f == 0]
        dims.append(b.choose(factors))
        rest //= dims[-1]
    dims = dims + [rest] if rest > 1 else dims
    dims.insert(b.int(0, len(dims)), 1) if b.chance(0.3) else None
    if dims and b.chance(0.5):
        dims[b.int(0, len(dims) - 1)] = -1
    elif dims and b.dims(x) and dims[0] == b.dims(x)[0] and b.chance(0.5):
        dims[0] = 0
    return b.node('Reshape', [x, b.const(dims)])


def flatten(b):
    """Adds a Flatten at any axis."""
    x = b.take(TYPES)
    return b.node('Flatten', [x], axis=b.int(0, b.rank(x)))


def squeeze(b):
    """Adds a Squeeze of some or all axes of extent 1."""
    x = b.take(TYPES, where=lambda v: 1 in v.shape)
    ones = [i for i, d in enumerate(b.dims(x)) if d == 1]
    if b.chance(0.3):
        return b.node('Squeeze', [x])
    chosen = [i for i in ones if b.chance(0.7)] or ones[:1]
    chosen = [i - b.rank(x) if b.chance(0.5) else i for i in chosen]
    return b.listed('Squeeze', x, chosen, 'axes', 13)


def unsqueeze(b):
    """Adds an Unsqueeze."""
    x = b.take(TYPES, range(5))
    rank = b.rank(x) + b.int(1, 2)
    axes = sorted(int(a) for a in b.rng.choice(rank, rank - b.rank(x), replace=False))
    axes = [a - rank for a in axes] if b.chance(0.4) else axes
    return b.listed('Unsqueeze', x, axes, 'axes', 13)


def transpose(b):
    """Adds a permutation."""
    x = b.take(TYPES)
    perm = [int(i) for i in b.rng.permutation(b.rank(x))] if b.rank(x) and b.chance(0.85) else None
    return b.node('Transpose', [x], perm=perm)


def expand(b):
    """Adds an Expand."""
    x = b.take(TYPES, range(5))
    dims = [b.choose([2, 3, 5]) if d == 1 and b.chance(0.7) else b.choose([d, 1]) for d in b.dims(x)]
    dims = [b.choose([1, 2])] + dims if b.chance(0.3) else dims
    if b[x].size * np.prod(dims, dtype=int) > MOST:
        raise Skip
    return b.node('Expand', [x, b.const(dims)])


def tile(b):
    """Adds a Tile."""
    x = b.take(TYPES, where=lambda v: v.size <= 256)
    return b.node('Tile', [x, b.const([b.choose([1, 1, 2, 3]) for _ in b.dims(x)])])


def concat(b):
    """Adds a Concat of one to three values."""
    x = b.take(TYPES, range(1, 6))
    axis = b.axis(b.rank(x))
    parts = [x]
    for _ in range(b.int(0, 2)):
        dims = list(b.dims(x))
        dims[axis] = b.int(0, 4)
        parts.insert(b.int(0, len(parts)), b.fresh(dims, b[x].dtype) if b.chance(0.8) else x)
    return b.node('Concat', parts, axis=axis)


def shape(b):
    """Adds a Shape, of some axes from op set 15 on."""
    x = b.take(TYPES)
    if b.opset < 15 or b.chance(0.5):
        return b.node('Shape', [x])
    return b.node('Shape', [x], start=b.int(-3, 3), end=b.int(-3, 6) if b.chance(0.5) else None)


def depth_to_space(b):
    """Adds a DepthToSpace in either mode."""
    block = b.choose([1, 2, 3])
    x = b.fresh((b.int(1, 2), block * block * b.int(1, 3), b.int(1, 4), b.int(1, 3)), b.dtype(FLOATS))
    return b.node('DepthToSpace', [x], blocksize=block, mode=b.choose(['DCR', 'CRD']))


def space_to_depth(b):
    """Adds a SpaceToDepth."""
    block = b.choose([1, 2, 3])
    x = b.fresh((b.int(1, 2), b.int(1, 3), block * b.int(1, 3), block * b.int(1, 3)), b.dtype(FLOATS))
    return b.node('SpaceToDepth', [x], blocksize=block)


def slice_(b):
    """Adds a Slice with steps of both signs and bounds beyond the ends."""
    x = b.take(TYPES, range(1, 6))
    axes = sorted(int(a) for a in b.rng.choice(b.rank(x), b.int(1, b.rank(x)), replace=False))
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = b.dims(x)[axis], b.choose([1, 1, 1, 2, 3, -1, -2])
        forward = (b.int(-n - 1, n), b.choose([n, b.int(0, n), -1, 2**31 - 1, 2**63 - 1, b.int(-n - 1, n + 2)]))
        backward = (b.choose([-1, n, b.int(-n, n), 2**31 - 1]), b.choose([-n - 1, -2**31, -2**63 + 1, b.int(-n - 1, n)]))
        start, end = forward if step > 0 else backward
        starts.append(start), ends.append(end), steps.append(step)
    axes = [a - b.rank(x) if b.chance(0.3) else a for a in axes]
    return b.node('Slice', [x, b.const(starts), b.const(ends), b.const(axes), b.const(steps)])


def split(b):
    """Adds a Split into two or three parts."""
    x = b.take(TYPES, range(1, 6))
    axis = b.axis(b.rank(x))
    n, parts = b.dims(x)[axis], b.int(2, 3)
    if b.opset >= 18 and b.chance(0.3) and n >= parts and -(-n // parts) * (parts - 1) < n:
        return b.node('Split', [x], parts, axis=axis, num_outputs=parts)
    cuts = np.sort(b.rng.integers(0, n + 1, parts - 1))
    sizes = [int(d) for d in np.diff([0, *cuts, n])]
    if b.opset < 13:
        return b.node('Split', [x], parts, axis=axis, split=sizes)
    return b.node('Split', [x, b.const(sizes)], parts, axis=axis)


def pad(b):
    """Adds a Pad in any mode. Constant padding may be negative."""
    x = b.take(TYPES if b.opset >= 13 else FLOATS + INTS, range(1, 5))
    mode = b.choose(['constant', 'constant', 'reflect', 'edge', 'wrap'] if b.opset >= 19 else ['constant', 'constant', 'reflect', 'edge'])
    low, high = [], []
    for d in b.dims(x):
        most = {'constant': 3, 'edge': 3 if d else 0, 'reflect': max(d - 1, 0), 'wrap': d}[mode]
        least = -min(d // 2, 1) if mode == 'constant' else 0
        low.append(b.int(least, min(most, 3))), high.append(b.int(least, min(most, 3)))
    fill = b.fresh((), b[x].dtype, constant=True) if mode == 'constant' and b.chance(0.6) else ''
    return b.node('Pad', [x, b.const(low + high), fill], mode=mode)


def constant(b):
    """Adds a Constant node."""
    value = b[b.fresh(b.shape(), b.dtype(FLOATS + INTS), constant=True)]
    return b.node('Constant', [], value=stored('', value))


def constant_of_shape(b):
    """Adds a ConstantOfShape."""
    value = b[b.fresh((1,), b.dtype(FLOATS[:3] + INTS), constant=True)]
    return b.node('ConstantOfShape', [b.const(b.shape())], value=stored('', value) if b.chance(0.8) else None)


def range_(b):
    """Adds a Range of integers or floats with known limits."""
    dtype = b.dtype((F32, F64, I32, I64))
    start, step, n = b.int(-5, 5), b.choose([1, 2, -1, 3]), b.int(0, 12)
    if dtype in (F32, F64) and b.chance(0.5):
        start, step = np.round(b.rng.uniform(-2, 2), 2), b.choose([0.1, 0.25, 0.3, -0.5, 1 / 3])
    far = 2**53 if dtype == I64 and b.chance(0.15) else 0
    ends = [far + start, far + start + n * step, step]
    return b.node('Range', [b.leaf(np.array(v, dtype), constant=True) for v in ends])


def eye_like(b):
    """Adds an EyeLike with any diagonal."""
    x = b.take(FLOATS + INTS, (2,))
    return b.node('EyeLike', [x], dtype=code(b.dtype((F32, F64, I64, I32))) if b.chance(0.6) else None, k=b.int(-3, 3))


def trilu(b):
    """Adds a Trilu whose diagonal is an input or is left out."""
    x = b.take(FLOATS + (I64, I32), range(2, 5))
    return b.node('Trilu', [x, b.const(b.int(-3, 3)) if b.chance(0.6) else ''], upper=b.int(0, 1))


STEPS = {
    'Reshape': reshape, 'Flatten': flatten, 'Squeeze': squeeze, 'Unsqueeze': unsqueeze, 'Transpose': transpose, 'Expand': expand,
    'Tile': tile, 'Concat': concat, 'Shape': shape, 'Size': lambda b: b.node('Size', [b.take(TYPES)]), 'DepthToSpace': depth_to_space,
    'SpaceToDepth': space_to_depth, 'Slice': slice_, 'Split': split, 'Pad': pad, 'Constant': constant,
    'ConstantOfShape': constant_of_shape, 'Range': range_, 'EyeLike': eye_like, 'Trilu': trilu,
}
