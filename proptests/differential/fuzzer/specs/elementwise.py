"""Generators of pointwise ops."""

import numpy as np

from ..builder import MOST, Skip
from ..graph import code
from ..values import BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTS, U8, U32, TYPES, is_float

SIGNED = FLOATS + (I64, I32, I8)


def unary(op, types=FLOATS, **attrs):
    """Returns a generator of an op with one operand. Functions of the builder draw the attributes."""
    def step(b):
        drawn = {name: draw(b) for name, draw in attrs.items() if b.chance(0.7)}
        return b.node(op, [b.take(types)], **drawn)
    return step


def binary(op, types=FLOATS + INTS):
    """Returns a generator of an op with two operands that broadcast."""
    def step(b):
        x = b.take(types)
        y = b.like(x)
        return b.node(op, [x, y] if b.chance(0.5) else [y, x])
    return step


def logic(op):
    """Returns a generator of an op on truth values."""
    def step(b):
        x = b.take((BOOL,))
        return b.node(op, [x, b.like(x)])
    return step


def together(b, names):
    """Skips the step if operands do not broadcast with each other."""
    try:
        size = np.prod(np.broadcast_shapes(*[b.dims(name) for name in names]), dtype=int)
    except ValueError:
        raise Skip from None
    if size > MOST:
        raise Skip


def variadic(op, types):
    """Returns a generator of an op with one to four operands."""
    def step(b):
        x = b.take(types)
        more = [b.like(x) for _ in range(b.int(0, 3))]
        together(b, [x, *more])
        return b.node(op, [x, *more])
    return step


def uniform(low, high):
    """Returns a function that draws an attribute between two numbers, or returns one of them."""
    return lambda b: float(np.float32(b.choose([low, high, b.rng.uniform(low, high)])))


def divide(b):
    """Adds a division. Integer divisors are not zero."""
    x = b.take(FLOATS + INTS)
    if is_float(b[x].dtype):
        return b.node('Div', [x, b.like(x)])
    y = b.fresh(b.broadcast(b.dims(x)), b[x].dtype)
    b[y][b[y] == 0] = 3
    return b.node('Div', [x, y])


def power(b):
    """Adds a power: of any floats, or with small exponents of integers."""
    x = b.take(FLOATS + (I32, I64))
    if is_float(b[x].dtype):
        if b.chance(0.5):
            y = b.number(b[x].dtype, b.choose([0.5, 2.0, 3.0, -1.0, -0.5, 0.0, 1.0, 1.5]))
            return b.node('Pow', [x, y])
        return b.node('Pow', [x, b.like(x, (b[x].dtype, F32) if b.opset >= 12 else None)])
    return b.node('Pow', [x, b.leaf(np.abs(b.rng.integers(0, 4, ())).astype(b[x].dtype))])


def modulo(b):
    """Adds a remainder: of integers with the sign of the divisor or of the dividend, or of floats by fmod."""
    x = b.take(FLOATS + INTS)
    y = b.like(x)
    if is_float(b[x].dtype):
        return b.node('Mod', [x, y], fmod=1)
    y = b.fresh(b.broadcast(b.dims(x)), b[x].dtype)
    b[y][b[y] == 0] = 3
    return b.node('Mod', [x, y], fmod=b.choose([0, 0, 1]))


def cast(b):
    """Adds a conversion between any two element types."""
    x = b.take(TYPES)
    return b.node('Cast', [x], to=code(b.dtype(tuple(t for t in TYPES if t != b[x].dtype))))


def cast_like(b):
    """Adds a conversion to the type of another value."""
    x = b.take(TYPES)
    return b.node('CastLike', [x, b.take(TYPES, new=0.6)])


def where(b):
    """Adds a choice between two values."""
    x = b.take(TYPES)
    condition = b.like(x, (BOOL,))
    y = b.like(x)
    together(b, [condition, x, y])
    return b.node('Where', [condition, x, y] if b.chance(0.5) else [condition, y, x])


def clip(b):
    """Adds a clamp by one or two bounds."""
    x = b.take(FLOATS + INTS)
    bounds = np.sort(b.rng.integers(0, 6, 2)) - (0 if b[x].dtype in (U8, U32) else 3)
    low, high = (b.number(b[x].dtype, v) if b.chance(0.8) else '' for v in bounds)
    return b.node('Clip', [x, low, high])


def prelu(b):
    """Adds a PRelu whose slope broadcasts to the operand."""
    x = b.take(FLOATS)
    dims = [d if b.chance(0.5) else 1 for d in b.dims(x)]
    return b.node('PRelu', [x, b.fresh(dims, b[x].dtype)])


def infinite(b):
    """Adds a test for infinities of one or both signs."""
    types = (F32, F64) if b.opset < 20 else FLOATS
    return b.node('IsInf', [b.take(types)], detect_positive=b.int(0, 1), detect_negative=b.int(0, 1))


def dropout(b):
    """Adds a Dropout at inference."""
    x = b.take(FLOATS)
    if b.opset < 12:
        return b.node('Dropout', [x], ratio=0.3)
    return b.node('Dropout', [x, b.number(F32, 0.5) if b.chance(0.5) else ''])


_FUNCTIONS = '''Sqrt Exp Log Reciprocal Floor Ceil Round Erf Sin Cos Tan Atan Asin Acos Sinh Cosh Asinh Acosh Atanh
Sigmoid Tanh Softplus Softsign HardSwish Mish'''.split()

STEPS = {
    **{op: unary(op) for op in _FUNCTIONS},
    'Neg': unary('Neg', SIGNED), 'Abs': unary('Abs', FLOATS + INTS), 'Sign': unary('Sign', FLOATS + INTS),
    'Relu': unary('Relu', SIGNED), 'IsNaN': unary('IsNaN'), 'Identity': unary('Identity', TYPES),
    'LeakyRelu': unary('LeakyRelu', alpha=uniform(0.0, 1.0)), 'ThresholdedRelu': unary('ThresholdedRelu', alpha=uniform(-1.0, 2.0)),
    'Elu': unary('Elu', alpha=uniform(0.5, 2.0)), 'Celu': unary('Celu', (F32,), alpha=uniform(0.5, 2.0)),
    'Selu': unary('Selu', alpha=uniform(0.5, 2.0), gamma=uniform(0.5, 2.0)),
    'HardSigmoid': unary('HardSigmoid', alpha=uniform(0.0, 1.0), beta=uniform(0.0, 1.0)),
    'Gelu': unary('Gelu', approximate=lambda b: b.choose(['none', 'tanh'])), 'Swish': unary('Swish', alpha=uniform(0.5, 2.0)),
    'Shrink': unary('Shrink', FLOATS, lambd=uniform(0.0, 1.0), bias=uniform(-1.0, 1.0)),
    'Add': binary('Add'), 'Sub': binary('Sub'), 'Mul': binary('Mul'), 'Div': divide, 'Pow': power, 'Mod': modulo,
    'Equal': binary('Equal', FLOATS + INTS), 'Less': binary('Less'), 'LessOrEqual': binary('LessOrEqual'),
    'Greater': binary('Greater'), 'GreaterOrEqual': binary('GreaterOrEqual'),
    'Max': variadic('Max', FLOATS + INTS), 'Min': variadic('Min', FLOATS + INTS), 'Sum': variadic('Sum', FLOATS), 'Mean': variadic('Mean', FLOATS),
    'Not': lambda b: b.node('Not', [b.take((BOOL,))]), 'And': logic('And'), 'Or': logic('Or'), 'Xor': logic('Xor'),
    'Cast': cast, 'CastLike': cast_like, 'Where': where, 'Clip': clip, 'PRelu': prelu, 'IsInf': infinite, 'Dropout': dropout,
}
