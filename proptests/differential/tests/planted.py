"""Fixed graphs close to each exception of the judge, and faults to plant in their results."""

from dataclasses import dataclass

import numpy as np

from fuzzer.graph import Case, Node
from fuzzer.values import F16, F32, F64, is_float

INF, NAN = np.inf, np.nan
LEAST = float(np.finfo(F32).min)


@dataclass
class Planted:
    """A case, the elements of its result that contracts leave open, and whether the sign of a zero is exact.

    The elements of `loose` are open too, except under the contract `exact`.
    """
    case: Case
    open: tuple = ()
    loose: tuple = ()
    signed: bool = False


def one(op, inputs, outputs=('y',), opset=23, **attrs):
    """Returns a case of one node. `inputs` are arrays."""
    names = [f'x{i}' for i in range(len(inputs))]
    values = {name: value for name, value in zip(names, inputs) if value is not None}
    used = [name if name in values else '' for name in names]
    return Case(opset, values, {}, [Node(op, used, list(outputs), attrs)], list(outputs))


def chain(inputs, *nodes, opset=23):
    """Returns a case of nodes that are given as (op, operands, result, attributes). The last result is the output."""
    made = [Node(op, operands.split(), [result], dict(*attrs)) for op, operands, result, *attrs in nodes]
    return Case(opset, inputs, {}, made, [made[-1].outputs[0]])


def numbers(*shape, dtype=F32, seed=5):
    """Returns ordinary numbers with absolute values between 1/2 and 2."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)).astype(dtype)


def replaced(value, **at):
    """Returns an array with some elements replaced: `_0_1=3.0` replaces the one at [0, 1]."""
    value = value.copy()
    for place, number in at.items():
        value[tuple(int(i) for i in place[1:].split('_'))] = number
    return value


def attention(bias, scores_key=None):
    """Returns attention in primitives with a bias. It has one batch, two rows, three keys and two channels."""
    key = numbers(2, 3, seed=7) if scores_key is None else scores_key
    leaves = {'q': np.abs(numbers(2, 2)), 'k': key, 'b': np.array(bias, F32), 'v': numbers(3, 2, seed=9)}
    return chain(leaves, ('MatMul', 'q k', 's'), ('Add', 's b', 't'), ('Softmax', 't', 'w', {'axis': -1}), ('MatMul', 'w v', 'y'))


def exponential_row(x):
    """Returns a softmax in primitives."""
    axes = np.array([-1])
    return chain({'x': x, 'a': axes}, ('ReduceMax', 'x a', 'm'), ('Sub', 'x m', 'd'), ('Exp', 'd', 'e'), ('ReduceSum', 'e a', 's'), ('Div', 'e s', 'y'))


_LOW = np.array([[0.5, -100, 1.5], [-90, 2, -89]], F32)
_WIDE = replaced(numbers(2, 4), _0_1=1e30, _0_2=1e30)
_POINTWISE = replaced(numbers(2, 4), _0_0=0.0, _1_3=-0.0, _0_2=NAN, _1_1=INF)

CASES = {
    'softmax, light weights': Planted(one('Softmax', [_LOW])),
    'softmax, light weights, op set 12': Planted(one('Softmax', [_LOW], opset=12, axis=1)),
    'softmax in primitives, light weights': Planted(exponential_row(_LOW)),
    'softmax with NaN': Planted(one('Softmax', [replaced(_LOW, _0_1=NAN)])),
    'quotient of exponentials that is no softmax': Planted(chain({'x': numbers(2, 3), 'c': numbers(2, 3, seed=6)}, ('Exp', 'x', 'e'), ('Div', 'e c', 'y'))),
    'logarithm of softmax in float64 with NaN': Planted(one('LogSoftmax', [replaced(numbers(2, 3, dtype=F64), _0_1=NAN)])),
    'attention': Planted(attention([0, 0.5, -1])),
    'attention, a hidden key': Planted(attention([0, -INF, 0])),
    'attention, a key hidden by a finite number': Planted(attention([0, LEAST, 0])),
    'attention, all keys hidden by a finite number': Planted(attention([LEAST] * 3)),
    'attention, an infinite score under a scalar bias': Planted(attention(LEAST, replaced(numbers(2, 3), _0_0=INF)),
        loose=((0, 0), (0, 1), (1, 0), (1, 1))),
    'attention, an infinite score of a key that is not hidden': Planted(attention([0, LEAST, 0], replaced(numbers(2, 3), _0_0=INF))),
    'attention, a huge score under a scalar bias': Planted(attention(LEAST, replaced(numbers(2, 3), _0_0=1e35)),
        loose=((0, 0), (0, 1), (1, 0), (1, 1))),
    'product of a product with NaN': Planted(
        chain({'a': np.array([[INF], [1]], F32), 'b': np.array([[0, 2]], F32), 'c': np.array([[1], [1.5]], F32)}, ('MatMul', 'a b', 'p'), ('MatMul', 'p c', 'y')),
        open=((0, 0),)),
    'attention, a large value': Planted(attention([0, 0.5, -1], replaced(numbers(2, 3, seed=7), _0_0=2.0**50))),
    'sum of three': Planted(one('Sum', [numbers(2, 3), numbers(2, 3, seed=6), numbers(3, seed=7)])),
    'sum of three whole numbers': Planted(one('Sum', [np.array([3, 4], F16), np.array([5, -9], F16), np.array([7, 2], F16)])),
    'sum of two': Planted(one('Sum', [numbers(2, 3), numbers(2, 3, seed=6)])),
    'mean of squares, 16 bits': Planted(one('ReduceL2', [numbers(2, 4, dtype=F16), np.array([1])])),
    'Gemm, 16 bits': Planted(one('Gemm', [numbers(2, 3, dtype=F16), numbers(3, 2, dtype=F16), numbers(2, dtype=F16)], alpha=float(np.float32(0.3)))),
    'Mish': Planted(one('Mish', [np.array([-93, -80, -1, 0.5, 30], F32)], opset=18), open=((0,),)),
    'Swish': Planted(one('Swish', [np.array([-65, -50, -1, 0.5, 30], F32)], opset=24, alpha=float(np.float32(1.46))), open=((0,),)),
    'root of squares, one row overflows': Planted(one('ReduceL2', [_WIDE, np.array([1])]), open=((0, 0),)),
    'logarithm of a sum, one row overflows': Planted(
        one('ReduceLogSum', [np.abs(replaced(_WIDE, _0_1=3e38, _0_2=1e38)), np.array([1])]), open=((0, 0),)),
    'logarithm of exponentials with infinities': Planted(
        one('ReduceLogSumExp', [np.array([[-INF, -INF], [INF, 1], [NAN, 1], [2, -INF]], F32), np.array([1])])),
    'product, one row overflows on the way': Planted(one('ReduceProd', [replaced(_WIDE, _0_0=1e-30, _0_3=1e-30), np.array([1])]), open=((0, 0),)),
    'running product': Planted(one('CumProd', [numbers(2, 4), np.array(1)], opset=26)),
    'ConvTranspose, SAME, shorter than its stride': Planted(
        one('ConvTranspose', [numbers(1, 2, 3), numbers(2, 1, 2), numbers(1)], strides=[3], auto_pad='SAME_UPPER')),
    'ConvTranspose, SAME, longer than its stride': Planted(one('ConvTranspose', [numbers(1, 2, 3), numbers(2, 1, 3)], strides=[2], auto_pad='SAME_LOWER')),
    'AveragePool, an empty window': Planted(
        one('AveragePool', [numbers(1, 1, 3)], kernel_shape=[2], dilations=[4], pads=[1, 3], opset=21), open=((0, 0, 0),)),
    'Resize, linear, an infinity': Planted(
        one('Resize', [replaced(numbers(1, 1, 4), _0_0_1=INF), None, np.array([1, 1, 2], F32)], mode='linear', coordinate_transformation_mode='asymmetric')),
    'Resize, nearest, NaN': Planted(
        one('Resize', [replaced(numbers(1, 1, 4), _0_0_1=NAN), None, np.array([1, 1, 2], F32)], mode='nearest', coordinate_transformation_mode='asymmetric')),
    'layer norm': Planted(one('LayerNormalization', [numbers(2, 4), numbers(4, seed=6)])),
    'matrix product': Planted(one('MatMul', [replaced(numbers(2, 3), _0_1=NAN), numbers(3, 2, seed=6)])),
    'negation': Planted(one('Neg', [_POINTWISE]), signed=True),
    'transposition': Planted(one('Transpose', [_POINTWISE], perm=[1, 0]), signed=True),
    'product': Planted(one('Mul', [_POINTWISE, numbers(4, seed=6)]), signed=True),
    'rows by ids': Planted(one('Gather', [numbers(5, 3), np.array([4, 0, 2])]), signed=True),
    'largest': Planted(one('ArgMax', [replaced(numbers(3, 4), _1_2=NAN)], axis=1)),
    'rank': Planted(one('TopK', [np.array([[3, 1, 2, 5]], F32), np.array([2])], ('y', 'i'))),
    'quantised': Planted(one('QuantizeLinear', [numbers(2, 4), F32.type(0.1), np.uint8(128)])),
    'quotient that is rounded down': Planted(chain({'x': np.array([49, 7, 3], F32), 'c': np.array([49, 7, 2], F32)}, ('Div', 'x c', 'q'), ('Floor', 'q', 'y'))),
}


def faults(value, signed):
    """Yields (name, element or None, result with the fault) for each fault that changes a result."""
    for at in np.ndindex(value.shape):
        for name, wrong in element_faults(value, value[at], signed):
            result = value.copy()
            result[at] = wrong
            yield name, at, result
    if value.ndim:
        for axis in range(value.ndim):
            shifted = np.roll(value, 1, axis)
            if not np.array_equal(shifted, value, equal_nan=is_float(value.dtype)):
                yield f'shifted along axis {axis}', None, shifted


def element_faults(value, x, signed):
    """Yields (name, wrong element)."""
    if not is_float(value.dtype):
        yield 'one more', not x if value.dtype == bool else x + 1 if x < np.iinfo(value.dtype).max else x - 1
        return
    # A unit of 16-bit numbers is about a thousandth.
    part = 0.05 if value.dtype.itemsize == 2 else 0.01
    finite = np.abs(value[np.isfinite(value)].astype(float))
    if np.isnan(x):
        yield 'NaN dropped', 0.0
        yield 'NaN dropped', 1.0
    elif np.isinf(x):
        yield 'infinity dropped', 1.0
        yield 'infinity of the other sign', -x
    else:
        yield 'off by 1 %', float(x) + part * max(abs(float(x)), 1e-3 * finite.max())
        yield 'NaN made', NAN
        yield 'infinity made', INF
        if x == 0 and signed:
            yield 'sign of zero', -x
