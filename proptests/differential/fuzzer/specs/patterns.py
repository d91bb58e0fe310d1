"""Patterns of several nodes that rules look for or people report: guards, masks, observed divisions, attention."""

import numpy as np

from ..builder import Skip
from ..graph import code
from ..values import BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, U8

_READERS = ['Floor', 'Ceil', 'Round', 'Sign', 'Cast', 'ArgMax', 'Equal', 'Greater', 'Less', 'Hardmax', 'TopK', 'QuantizeLinear', 'Mod']


def reader(b, x, y=None):
    """Adds a discontinuous op that reads a value, and compares it with `y` if the op compares."""
    op = b.choose(_READERS)
    x_type = b[x].dtype
    if op == 'Cast':
        return b.node('Cast', [x], to=code(b.choose([I64, I32])))
    if op in ('Equal', 'Greater', 'Less'):
        return b.node(op, [x, y or b.like(x)])
    if op == 'Mod':
        return b.node('Mod', [x, b.number(x_type, b.choose([1.0, 2.0, 0.5]))], fmod=1)
    if op in ('ArgMax', 'Hardmax', 'TopK') and (b.rank(x) == 0 or b[x].size == 0 or np.isnan(b[x].astype(float)).any() and op == 'TopK'):
        op = 'Floor'
    if op == 'TopK' and x_type not in (F32, F64) or op == 'QuantizeLinear' and x_type != F32:
        op = 'Round'
    if op == 'ArgMax':
        return b.node(op, [x], axis=-1)
    if op == 'TopK':
        return b.node(op, [x, b.const([min(2, b.dims(x)[-1])])], 2, axis=-1)
    if op == 'QuantizeLinear':
        return b.node(op, [x, b.number(F32, b.choose([0.1, 0.3, 1.0]))])
    return b.node(op, [x])


def whole_numbers(b, dtype=None, shape=None):
    """Adds a tensor of whole numbers."""
    dtype = dtype or b.dtype(FLOATS)
    most = 130 if dtype in (F32, F64) else 40
    return b.leaf(np.asarray(b.rng.integers(1, most, b.shape() if shape is None else shape)).astype(dtype))


def whole_division(b):
    """Adds a division of whole numbers that a discontinuous op reads."""
    x = whole_numbers(b)
    dtype, n = b[x].dtype, b.int(2, 50)
    how = b.int(0, 4)
    if how == 0:
        y = b.node('Div', [x, b.number(dtype, n)])
    elif how == 1:
        row = b.leaf(b.rng.integers(1, 50, b.dims(x)[-1:]).astype(dtype))
        y = b.node('Div', [x, row])
    elif how == 2:
        y = b.node('Mul', [x, b.node('Reciprocal', [b.number(dtype, n)])])
    elif how == 3:
        y = b.node('Div', [x, b.node('Sqrt', [b.number(dtype, n * n)])])
    else:
        y = b.node('Div', [b.node('Div', [x, b.number(dtype, 3)]), b.number(dtype, n)])
    if b.chance(0.3):
        y = b.node(b.choose(['Neg', 'Abs', 'Relu']), [y])
    return reader(b, y)


def arithmetic_reader(b):
    """Adds some arithmetic that rules simplify, and a discontinuous op that reads it."""
    x = b.take(FLOATS)
    dtype, c, d = b[x].dtype, b.choose([3.0, 0.1, 1e4, 0.7, 7.0]), b.choose([5.0, 0.3, 49.0, 2.0])
    y = b.like(x)
    for _ in range(b.int(1, 3)):
        op = b.choose(['add', 'sub', 'mul', 'div', 'rdiv', 'addy', 'muly', 'divy', 'sqrt', 'sq', 'rec'])
        step = {'add': ('Add', [x, c]), 'sub': ('Sub', [x, d]), 'mul': ('Mul', [x, c]), 'div': ('Div', [x, d]), 'rdiv': ('Div', [c, x]),
                'addy': ('Add', [x, y]), 'muly': ('Mul', [x, y]), 'divy': ('Div', [x, y]), 'sqrt': ('Sqrt', [x]), 'sq': ('Mul', [x, x]),
                'rec': ('Reciprocal', [x])}[op]
        x = b.node(step[0], [a if isinstance(a, str) else b.number(dtype, a) for a in step[1]])
    return reader(b, x) if b.chance(0.8) else x


def guard(b):
    """Adds a guard against NaN, infinities or signs by Where."""
    x = b.take(FLOATS, where=lambda v: v.size)
    if b.chance(0.4) and b.rank(x):
        x = b.node('Softmax', [x], axis=-1)
    dtype = b[x].dtype
    fill = b.number(dtype, b.choose([0.0, 0.0, 1.0, -1.0]))
    if b.chance(0.5):
        return b.node('Where', [b.node('IsNaN', [x]), fill, x])
    condition = b.node(b.choose(['Greater', 'GreaterOrEqual', 'Less', 'LessOrEqual', 'Equal']), [x, b.number(dtype, b.choose([0.0, 0.0, 0.5]))])
    return b.node('Where', [condition, x, fill] if b.chance(0.6) else [condition, fill, x])


def masked_softmax(b):
    """Adds a softmax after a mask: a selection, a summand, a whole row, or a finite number for −∞. A guard or product may follow."""
    x = b.take((F32, F64, F16), range(1, 5), where=lambda v: v.size)
    dtype, dims = b[x].dtype, b.dims(x)
    lowest = float(np.finfo(dtype).min)
    hidden = b.choose([-np.inf, lowest, -1e9 if dtype != F16 else -1e4, -100.0])
    keep = b.rng.random(b.choose([dims, dims[-1:], dims[:-1] + (1,)])) < 0.6
    if b.chance(0.6):
        y = b.node('Where', [b.leaf(keep, constant=False), x, b.number(dtype, hidden)])
    else:
        y = b.node('Add', [x, b.leaf(np.where(keep, 0, hidden).astype(dtype), constant=False)])
    y = b.node('Softmax', [y], axis=-1)
    if b.chance(0.3):
        y = b.node('Where', [b.node('IsNaN', [y]), b.number(dtype, 0.0), y])
    if b.chance(0.5) and b.rank(y) >= 2:
        batch = b.dims(y)[:-2]
        y = b.node('MatMul', [y, b.fresh((*batch, b.dims(y)[-1], 3), dtype, constant=False)])
    return y


def attention(b):
    """Adds scaled dot-product attention in the form of exporters, with some mask."""
    batch, heads, q, k, d = b.int(1, 2), b.int(1, 2), b.int(1, 5), b.int(1, 6), b.choose([2, 4, 8])
    dtype = b.dtype((F32, F32, F64))
    mood = b.mood
    make = lambda rows: b.fresh((batch, heads, rows, d), dtype, constant=False, mood='tame' if b.chance(0.7) else mood)
    query, key, value = make(q), make(k), make(k)
    if b.chance(0.5):
        query = b.node('Mul', [query, b.number(dtype, d**-0.5)])
    scores = b.node('MatMul', [query, b.node('Transpose', [key], perm=[0, 1, 3, 2])])
    if b.chance(0.4):
        scores = b.node('Div', [scores, b.number(dtype, d**0.5)])
    keep = b.rng.random(b.choose([(q, k), (batch, 1, q, k), (batch, 1, 1, k)])) < 0.6
    hidden = b.choose([-np.inf, -1e9, float(np.finfo(dtype).min)])
    how = b.int(0, 2)
    if how == 0:
        scores = b.node('Add', [scores, b.leaf(np.where(keep, 0, hidden).astype(dtype), constant=False)])
    elif how == 1:
        scores = b.node('Where', [b.leaf(keep, constant=False), scores, b.number(dtype, hidden)])
    weights = b.node('Softmax', [scores], axis=-1)
    if b.chance(0.3):
        weights = b.node('Where', [b.node('IsNaN', [weights]), b.number(dtype, 0.0), weights])
    return b.node('MatMul', [weights, value])


def quantised(b):
    """Adds a chain that quantises and dequantises, with a product or a sum between."""
    x = b.leaf(np.asarray(np.round(b.rng.uniform(-9, 9, b.shape()), 2)).astype(F32)) if b.chance(0.6) else b.take((F32,))
    scale, zero = b.number(F32, b.choose([0.1, 0.3, 0.05, 1 / 255, 0.5])), b.number(b.choose([I8, U8]), b.int(0, 60))
    y = b.node('DequantizeLinear', [b.node('QuantizeLinear', [x, scale, zero]), scale, zero])
    if b.chance(0.4) and b.rank(y) >= 1:
        y = b.node('MatMul', [y, b.fresh((b.dims(y)[-1], 4), F32, mood='tame')])
    if b.chance(0.5):
        scale2 = b.number(F32, b.choose([0.1, 0.3, 0.02]))
        y = b.node('DequantizeLinear', [b.node('QuantizeLinear', [y, scale2, zero]), scale2, zero])
    return y


def norm_in_primitives(b):
    """Adds layer norm or RMS norm in the form of older exporters."""
    x = b.take((F32, F64, F16), range(1, 5), where=lambda v: v.size)
    dtype, eps = b[x].dtype, b.number(b[x].dtype, b.choose([1e-5, 1e-3]))
    centred = x
    mean = lambda v: b.listed('ReduceMean', v, [-1], 'axes', 18, keepdims=1)
    if b.chance(0.6):
        centred = b.node('Sub', [x, mean(x)])
    square = b.node('Mul', [centred, centred]) if b.chance(0.5) else b.node('Pow', [centred, b.number(dtype, 2.0)])
    root = b.node('Sqrt', [b.node('Add', [mean(square), eps])])
    y = b.node('Div', [centred, root]) if b.chance(0.6) else b.node('Mul', [centred, b.node('Reciprocal', [root])])
    return b.node('Mul', [y, b.fresh(b.dims(x)[-1:], dtype)])


def softmax_in_primitives(b):
    """Adds a softmax or a logarithm of a sum of exponentials, in common forms."""
    x = b.take((F32, F64, F16), range(1, 5), where=lambda v: v.size)
    y = b.node('Sub', [x, b.listed('ReduceMax', x, [-1], 'axes', 18, keepdims=1)]) if b.chance(0.7) else x
    e = b.node('Exp', [y])
    total = b.listed('ReduceSum', e, [-1], 'axes', 13, keepdims=1)
    return b.node('Div', [e, total]) if b.chance(0.7) else b.node('Sub', [y, b.node('Log', [total])])


def activation_in_primitives(b):
    """Adds GELU, SiLU, softplus or a leaky ReLU in primitives."""
    x = b.take(FLOATS)
    dtype, n = b[x].dtype, lambda v: b.number(b[x].dtype, v)
    kind = b.int(0, 4)
    if kind == 0:
        erf = b.node('Erf', [b.node('Div', [x, n(2**0.5)])])
        return b.node('Mul', [b.node('Mul', [x, n(0.5)]), b.node('Add', [erf, n(1.0)])])
    if kind == 1:
        return b.node('Mul', [x, b.node('Sigmoid', [x])])
    if kind == 2:
        return b.node('Log', [b.node('Add', [b.node('Exp', [x]), n(1.0)])])
    if kind == 3:
        return b.node('Max', [x, b.node('Mul', [x, n(0.1)])])
    return b.node('Reciprocal', [b.node('Add', [b.node('Exp', [b.node('Neg', [x])]), n(1.0)])])


def short_types(b):
    """Adds arithmetic of 16-bit types whose rounding is visible to a wider type or a comparison."""
    dtype = b.choose([F16, BF16])
    x = b.take((dtype,))
    y = b.node(b.choose(['Mul', 'Add', 'Sub', 'Div']), [x, b.choose([x, b.like(x)])])
    if b.chance(0.5):
        return b.node('Cast', [y], to=code(b.choose([F32, F64])))
    return reader(b, y, x if b.chance(0.5) else None)


def observed_extremum(b):
    """Adds a comparison of values with their extremum, computed or folded."""
    x = b.take(FLOATS[:3], range(1, 4), where=lambda v: v.size)
    if b.chance(0.4):
        step = b.choose([0.1, 0.3, 1 / 3])
        x = b.node('Range', [b.leaf(np.array(v, F32), constant=True) for v in (0.0, step * b.int(3, 20), step)])
    if b.chance(0.6):
        x = b.node(b.choose(['Mul', 'Add', 'Div']), [x, b.number(b[x].dtype, b.choose([0.3, 7.0, 49.0]))])
    if b.chance(0.4):
        return b.node(b.choose(['ArgMax', 'ArgMin']), [x], axis=-1)
    extremum = b.listed(b.choose(['ReduceMax', 'ReduceMin']), x, [-1], 'axes', 18, keepdims=1)
    return b.node(b.choose(['Equal', 'GreaterOrEqual', 'Less']), [x, extremum])


def scaled_sum(b):
    """Adds a sum or mean with a scale before or after it, or a product of sums."""
    x = b.take(FLOATS, range(1, 4), where=lambda v: v.size)
    c = b.number(b[x].dtype, b.choose([0.1, 3.0, 1e30 if b[x].dtype in (F32, F64) else 300.0, 0.0]))
    y = b.node(b.choose(['Mul', 'Div']), [x, c]) if b.chance(0.6) else x
    y = b.listed('ReduceSum', y, [-1], 'axes', 13, keepdims=1) if b.chance(0.6) else b.listed('ReduceMean', y, [-1], 'axes', 18, keepdims=1)
    return b.node('Mul', [y, c]) if b.chance(0.5) else b.node(b.choose(['Sub', 'Div']), [x, y])


PATTERNS = {
    'whole division': whole_division, 'arithmetic and reader': arithmetic_reader, 'guard': guard, 'masked softmax': masked_softmax,
    'attention': attention, 'quantised': quantised, 'norm in primitives': norm_in_primitives, 'softmax in primitives': softmax_in_primitives,
    'activation in primitives': activation_in_primitives, 'short types': short_types, 'observed extremum': observed_extremum, 'scaled sum': scaled_sum,
}
