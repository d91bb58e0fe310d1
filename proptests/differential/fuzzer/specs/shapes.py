"""Patterns in which a graph computes shapes and positions, in the forms of exporters."""

import numpy as np

from ..builder import Skip
from ..graph import code
from ..values import F32, F64, I64, TYPES


def extent(b, x, axis):
    """Adds the extent of an axis, as a vector with one element."""
    shape = b.node('Shape', [x])
    if b.chance(0.5):
        return b.node('Gather', [shape, b.const([axis])], axis=0)
    return b.node('Slice', [shape, b.const([axis]), b.const([axis + 1]), b.const([0])])


def scaled(b, size):
    """Adds a size multiplied by a scale and rounded down, in the form of exporters."""
    dtype = b.choose([F32, F32, F64])
    real = b.node('Cast', [size], to=code(dtype))
    n = int(b[size][0])
    scale = b.choose([2.0, 0.5, 1.5, 0.7, 224 / 640, (b.int(1, 9) / max(n, 1)), 1 / 3, 0.1])
    real = b.node('Mul', [real, b.const(scale, dtype)]) if b.chance(0.7) else b.node('Div', [real, b.const(1 / scale, dtype)])
    real = b.node(b.choose(['Floor', 'Floor', 'Ceil', 'Round']), [real]) if b.chance(0.8) else real
    return b.node('Cast', [real], to=code(I64))


def resized(b):
    """Adds a Resize or an Expand to a size that the graph computes in floats."""
    n = b.int(1, 60)
    x = b.fresh((1, 1, n, 1), F32, mood='tame')
    size = scaled(b, extent(b, x, 2))
    wanted = int(b[size][0])
    if not 0 < wanted <= 600:
        raise Skip
    if b.chance(0.5):
        sizes = b.node('Concat', [b.const([1, 1]), size, b.const([1])], axis=0)
        return b.node('Resize', [x, '', '', sizes], mode='nearest', coordinate_transformation_mode='asymmetric', nearest_mode='floor')
    return b.node('ConstantOfShape', [size])


def reshaped(b):
    """Adds a Reshape to a shape computed by Shape, Gather, Mul and Concat."""
    x = b.take(TYPES, range(2, 5), where=lambda v: v.size)
    first, second = extent(b, x, 0), extent(b, x, 1)
    both = b.node('Mul', [first, second])
    rest = [b.const([d]) for d in b.dims(x)[2:]] if b.chance(0.5) else [b.const([-1])]
    return b.node('Reshape', [x, b.node('Concat', [both, *rest], axis=0)])


def positions(b):
    """Adds a table that is read at quotients of positions, like relative positions and buckets."""
    n, width = b.int(2, 40), b.int(1, 3)
    ids = b.node('Range', [b.const(0), b.const(n), b.const(1)])
    dtype, d = b.choose([F32, F64]), b.choose([3, 7, 41, 49, 10])
    real = b.node('Cast', [ids], to=code(dtype))
    divided = b.node('Div', [real, b.const(d, dtype)])
    ids = b.node('Cast', [b.node('Floor', [divided]) if b.chance(0.7) else divided], to=code(I64))
    return b.node('Gather', [b.fresh((n, width), F32), ids], axis=0)


PATTERNS = {'resized': resized, 'reshaped': reshaped, 'positions': positions}
