"""Computes pointwise ops in float64 and rounds once: the reference for elementary functions and arithmetic."""

import math

import numpy as np
from onnx import helper

from .rounding import narrow, spacing, wide
from .values import BOOL, is_float, limits

_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x >= 0, 1 / (1 + e), e / (1 + e)))


def _softplus(x):
    return np.where(np.isnan(x), x, np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _gelu(x, a):
    if a.get('approximate', 'none') in ('tanh', b'tanh'):
        # (1 + tanh u)/2 is a sigmoid, which does not cancel.
        return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * _erfc(-x / math.sqrt(2))


def _elu(x, alpha):
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


# These ops round once. In float64 they are so accurate for float32 operands that rounding twice equals rounding once.
ARITHMETIC = {
    'Add': np.add, 'Sub': np.subtract, 'Mul': np.multiply, 'Div': np.divide, 'Sqrt': np.sqrt,
    'Reciprocal': lambda x: 1 / x, 'Neg': np.negative, 'Abs': np.abs, 'Floor': np.floor, 'Ceil': np.ceil, 'Round': np.rint,
}

FUNCTIONS = {
    'Exp': np.exp, 'Log': np.log, 'Erf': _erf, 'Sin': np.sin, 'Cos': np.cos, 'Tan': np.tan, 'Atan': np.arctan,
    'Asin': np.arcsin, 'Acos': np.arccos, 'Sinh': np.sinh, 'Cosh': np.cosh, 'Asinh': np.arcsinh, 'Acosh': np.arccosh,
    'Atanh': np.arctanh, 'Sigmoid': _sigmoid, 'Tanh': np.tanh, 'Softplus': _softplus,
    'Softsign': lambda x: np.where(np.isinf(x), np.nan, x / (1 + np.abs(x))),
    'Mish': lambda x: x * np.tanh(_softplus(x)),
}

# Functions that also read attributes. The number after each name is ONNX's default.
WITH_ATTRS = {
    'LeakyRelu': lambda x, a: np.where(x < 0, x * a('alpha', 0.01), x),
    'ThresholdedRelu': lambda x, a: np.where(x > a('alpha', 1.0), x, np.where(np.isnan(x), 0.0, 0.0)),
    'Elu': lambda x, a: _elu(x, a('alpha', 1.0)),
    'Celu': lambda x, a: np.where(np.isnan(x), x, np.maximum(x, 0) + np.minimum(0, a('alpha', 1.0) * np.expm1(np.minimum(x, 0) / a('alpha', 1.0)))),
    'Selu': lambda x, a: a('gamma', 1.0507010221481323) * np.where(x > 0, x, a('alpha', 1.6732631921768188) * np.expm1(np.minimum(x, 0))),
    'HardSigmoid': lambda x, a: np.clip(a('alpha', 0.2) * x + a('beta', 0.5), 0, 1),
    'Swish': lambda x, a: x * _sigmoid(a('alpha', 1.0) * x),
    'Shrink': lambda x, a: np.where(x < -a('lambd', 0.5), x + a('bias', 0.0), np.where(x > a('lambd', 0.5), x - a('bias', 0.0), 0.0)),
}

INT = {
    'Add': np.add, 'Sub': np.subtract, 'Mul': np.multiply, 'Neg': np.negative, 'Abs': np.abs, 'Sign': np.sign,
    'Max': np.maximum, 'Min': np.minimum, 'Relu': lambda x: np.maximum(x, 0).astype(x.dtype),
}

COMPARE = {'Equal': np.equal, 'Less': np.less, 'LessOrEqual': np.less_equal, 'Greater': np.greater, 'GreaterOrEqual': np.greater_equal}
LOGIC = {'And': np.logical_and, 'Or': np.logical_or, 'Xor': np.logical_xor, 'Not': np.logical_not}


def _quotient(a, b):
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    floor = a // safe
    return (floor + ((a % safe != 0) & ((a < 0) != (safe < 0)))).astype(a.dtype)


def cast(x, to):
    """Converts as ONNX specifies. Results that ONNX leaves open are arbitrary."""
    with np.errstate(all='ignore'):
        if to == BOOL:
            return np.asarray(x != 0)
        if is_float(x.dtype) and is_float(to):
            return narrow(wide(x), to) if x.dtype.itemsize >= to.itemsize else x.astype(to)
        if is_float(x.dtype):
            x = np.nan_to_num(np.trunc(wide(x)), nan=0.0, posinf=0.0, neginf=0.0)
            return np.where(_out_of(x, to), 0, x).astype(to)
        return narrow(x.astype(np.float64), to) if is_float(to) and to.itemsize == 2 else x.astype(to)


def _out_of(x, to):
    info = np.iinfo(to)
    return ~((x > float(info.min) - 1) & (x < float(info.max) + (1 if info.bits < 64 else 0)))


def cast_target(node, args):
    """Returns the element type that a Cast or CastLike converts to."""
    return args[1].dtype if node.op == 'CastLike' else np.dtype(helper.tensor_dtype_to_np_dtype(node.attrs['to']))


def _mod(node, a, b):
    if node.attrs.get('fmod', 0):
        return narrow(np.fmod(wide(a), wide(b)), a.dtype) if is_float(a.dtype) else np.fmod(a, np.where(b == 0, 1, b).astype(b.dtype))
    return np.mod(a, np.where(b == 0, 1, b).astype(b.dtype))


def _power(a, b):
    if is_float(a.dtype):
        # NumPy's power of 1/2 is a root, which is NaN for −∞ and −0 for −0. IEEE 754 and ONNX give ∞ and 0.
        a, b, dtype = wide(a), wide(b), a.dtype
        return narrow(np.where((b == 0.5) & (np.isinf(a) | (a == 0)), np.abs(a), np.power(a, b)), dtype)
    return np.power(a, b.astype(a.dtype)) if not is_float(b.dtype) else cast(np.power(a.astype(float), wide(b)), a.dtype)


def _clip(node, args):
    x = args[0]
    low, high = (args[i] if i < len(args) and args[i] is not None else None for i in (1, 2))
    low = low if low is not None else node.attrs.get('min')
    high = high if high is not None else node.attrs.get('max')
    for bound, choose in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            x = choose(x, np.asarray(bound).astype(x.dtype))
    return x


def _float(node, args):
    x, op, dtype = [wide(a) for a in args], node.op, args[0].dtype
    attr = lambda name, default: float(np.float32(node.attrs.get(name, default)))
    if op in ARITHMETIC:
        return narrow(ARITHMETIC[op](*x), dtype)
    if op in FUNCTIONS:
        return narrow(FUNCTIONS[op](*x), dtype)
    if op in WITH_ATTRS:
        return narrow(WITH_ATTRS[op](x[0], attr), dtype)
    if op == 'PRelu':
        return narrow(np.where(x[0] < 0, x[0] * x[1], x[0]), dtype)
    if op == 'Gelu':
        return narrow(_gelu(x[0], node.attrs), dtype)
    if op == 'HardSwish':
        return narrow(x[0] * np.clip(x[0] / 6 + 0.5, 0, 1), dtype)
    if op == 'Sign':
        return np.sign(x[0]).astype(dtype)
    if op == 'Relu':
        return narrow(np.maximum(x[0], 0.0), dtype)
    if op in ('Max', 'Min'):
        choose = np.maximum if op == 'Max' else np.minimum
        total = x[0]
        for y in x[1:]:
            total = choose(total, y)
        return narrow(total, dtype)
    if op in ('Sum', 'Mean'):
        total = args[0]
        for y in args[1:]:
            total = narrow(wide(total) + wide(y), dtype)
        return total if op == 'Sum' else narrow(wide(total) / len(x), dtype)
    return None


def compute(node, args):
    """Returns the output of a pointwise op, or None for other ops and for unknown types."""
    op, x = node.op, args[0]
    with np.errstate(all='ignore'):
        if op in ('Cast', 'CastLike'):
            return cast(x, cast_target(node, args))
        if op == 'Where':
            return np.where(*args).astype(args[1].dtype)
        if op in COMPARE:
            # float64 cannot represent every int64.
            return np.asarray(COMPARE[op](*args) if not is_float(x.dtype) else COMPARE[op](wide(x), wide(args[1])))
        if op in LOGIC:
            return np.asarray(LOGIC[op](*args))
        if op == 'IsNaN':
            return np.isnan(wide(x))
        if op == 'IsInf':
            x = wide(x)
            up, down = node.attrs.get('detect_positive', 1), node.attrs.get('detect_negative', 1)
            return np.asarray(((x == np.inf) & bool(up)) | ((x == -np.inf) & bool(down)))
        if op == 'Mod':
            return _mod(node, *args)
        if op == 'Pow':
            return _power(*args)
        if op == 'Clip':
            return _clip(node, args)
        if is_float(x.dtype):
            return _float(node, args)
        if op == 'Div':
            return _quotient(*args)
        if op in ('Max', 'Min') and len(args) == 1:
            return x
        if op in INT:
            total = INT[op](*args[:2])
            for y in args[2:]:
                total = INT[op](total, y)
            return total
    return None


def undefined(node, args):
    """Returns a mask of output elements that ONNX leaves open, or None if all are defined."""
    op, x = node.op, args[0]
    with np.errstate(all='ignore'):
        if op in ('Cast', 'CastLike') and is_float(x.dtype):
            to = cast_target(node, args)
            if to.kind in 'iu':
                return ~np.isfinite(wide(x)) | _out_of(np.trunc(wide(x)), to)
        if op in ('Div', 'Mod') and x.dtype.kind in 'iu':
            zero = (args[1] == 0) | np.zeros(x.shape, bool)
            return zero | ((args[1] == -1) & (x == np.iinfo(x.dtype).min)) if x.dtype.kind == 'i' and op == 'Div' else zero
        if op == 'Pow' and x.dtype.kind in 'iu':
            power = np.power(np.abs(x.astype(float)), wide(args[1]))
            return ~(power < float(np.iinfo(x.dtype).max)) | (wide(args[1]) < 0)
        if op == 'Clip' and len(args) == 3 and args[1] is not None and args[2] is not None:
            low, high = wide(args[1]), wide(args[2])
            return np.broadcast_to(~(low <= high), x.shape) if not low <= high else None
        if op in ('Shrink', 'ThresholdedRelu') and is_float(x.dtype):
            # Thresholds are float32 attributes. ONNX does not say whether a kernel rounds them to 16 bits.
            threshold = narrow(wide(np.float32(node.attrs.get('lambd', 0.5) if op == 'Shrink' else node.attrs.get('alpha', 1.0))), x.dtype)
            return np.abs(wide(x)) == np.abs(wide(threshold)) if x.dtype.itemsize == 2 else None
        if op in ('Sin', 'Cos', 'Tan') and is_float(x.dtype):
            # A unit in the last place of such an argument is a considerable part of a period.
            return np.isfinite(wide(x)) & (spacing(wide(x), x.dtype) > 0.05)
        if op == 'QuantizeLinear':
            scale = wide(args[1])
            return np.isnan(wide(x)) | np.zeros(x.shape, bool) if (scale > 0).all() else np.ones(x.shape, bool)
    return None
