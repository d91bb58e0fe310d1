"""Evaluates a graph node by node, either exactly or with disturbed roundings."""

from dataclasses import dataclass, field, replace

import numpy as np

from . import pointwise
from .facts import (
    ABSOLUTE, CANCELLING, EXACT, GATES, HUGE, LINEAR, MOVE, OF_DIFFERENCES, PRODUCTS, RELATIVE, ROOTS, SHAPED, SQUARES, SUM, ULP, WHOLE_SUMS,
    ZERO_SIGN_OPEN, is_discontinuous, is_reordered, rounding_of,
)
from .own import hidden, light_weights, masked_product, without_light
from .padding import explicit
from .parts import axes_of, in_parts
from .references import Unable
from .rounding import narrow, spacing, stepped, wide
from .values import BF16, F16, F32, F64, is_float, limits, tensor


@dataclass
class Noise:
    """The way an evaluation is disturbed. `contract` is 'exact' or 'reassoc', and `strength` multiplies the steps."""
    rng: np.random.Generator
    contract: str
    strength: float = 1.0
    native: bool = False
    zeros: bool = False
    wide: bool = False
    other: bool = False
    masks: bool = False
    light: bool = False
    parts: bool = False
    weights: dict = field(default_factory=dict)
    biases: dict = field(default_factory=dict)
    regrouped: set = frozenset()
    cone: set = frozenset()
    types: dict = None

    def steps(self, shape, most):
        """Draws a step for each element: independent steps, or the same step for all."""
        draw = self.rng.integers(3)
        if draw == 0:
            return np.full(shape, self.rng.choice([-1, 1]) * most * self.strength)
        return self.rng.uniform(-most, most, shape) * self.strength if draw == 1 else self.rng.choice([-1, 1], shape) * most * self.strength


def evaluate(references, case, noise=None):
    """Returns all values of a graph by name. Undefined elements are random if `noise` is given.

    Raises references.Unable if no reference computes a node.
    """
    env = {name: np.asarray(value) for name, value in case.leaves().items()}
    if noise is not None and noise.zeros:
        env = {name: positive_zeros(value) for name, value in env.items()}
    cone = noise.cone if noise is not None else ()
    for node in case.nodes:
        run = run_wide if noise is not None and noise.wide else run_node
        for name, value in zip(node.outputs, run(references, node, env, case.opset, noise, cone)):
            if name:
                env[name] = value
    if noise is not None and noise.wide:
        env.update({name: narrow(env[name], noise.types[name]) for name in case.outputs if is_float(noise.types[name])})
    return env


def run_wide(references, node, env, opset, noise, cone):
    """Returns the outputs of one node in float64, unrounded except where a discontinuous op observes them.

    No intermediate result overflows or vanishes in this evaluation. Contracts allow any result between it and rounded ones.
    """
    floats = [name for name in node.reads() if is_float(noise.types[name])]
    if not floats:
        return references.run(node, env, opset)
    if node.op in ('Cast', 'CastLike') and floats[:1] == node.inputs[:1] and is_float(noise.types[node.outputs[0]]):
        outputs = [env[node.inputs[0]]]
    elif is_discontinuous(node, noise.types):
        outputs = references.run(node, narrowed(node, env, noise.types), opset)
    else:
        try:
            fixed = node.inputs[1:] if node.op in SHAPED else ()
            args = narrowed(node, env, noise.types)
            outputs = references.run(node, {name: wide(env[name]) if name in floats and name not in fixed else args[name] for name in args}, opset)
        except Unable:
            outputs = references.run(node, narrowed(node, env, noise.types), opset)
    rounded = lambda name, y: narrow(y, noise.types[name]) if y is not None and name in cone and is_float(noise.types[name]) else y
    return [rounded(name, y) for name, y in zip(node.outputs, outputs)]


def narrowed(node, env, types):
    """Returns the values that a node reads, in the element types of the graph."""
    return {name: narrow(env[name], types[name]) if is_float(types[name]) else env[name] for name in node.reads()}


def positive_zeros(value):
    """Replaces −0 by 0."""
    return np.where(wide(value) == 0, np.zeros((), value.dtype), value).astype(value.dtype) if is_float(value.dtype) else value


def run_node(references, node, env, opset, noise, cone):
    """Returns the outputs of one node, disturbed by as much as the op may round."""
    kind = rounding_of(node)
    seen = env
    if noise is not None and kind == SUM and not whole(node, env):
        seen = dict(env)
        for name in node.reads()[:1 if node.op in SHAPED else None]:
            seen[name] = disturbed_operand(env[name], noise, 4 if node.op in ('Conv', 'ConvTranspose') else 1)
            if node.op in OF_DIFFERENCES:
                seen[name] = np.where(np.abs(wide(env[name])) > HUGE, env[name], seen[name])
    elif noise is not None and noise.contract != 'exact' and is_reordered(node) and node.outputs[0] not in cone and not whole(node, env):
        seen = env | {name: stepped(env[name], noise.steps(env[name].shape, 1)) for name in node.reads()}
    if noise is not None and noise.parts and in_parts(node, env) is not None:
        outputs = [in_parts(node, env)]
    elif noise is not None and noise.light and node.op == 'Attention':
        outputs = light_weights(node, [env[name] if name else None for name in node.inputs], opset) or references.run(node, seen, opset)
    elif noise is not None and noise.masks and node.outputs[0] in noise.biases:
        outputs = [hidden(*(env[name] for name in noise.biases[node.outputs[0]]))]
    elif noise is not None and noise.masks and node.op == 'MatMul' and all(env[name].ndim >= 2 for name in node.inputs):
        outputs = [narrow(masked_product(*(env[name] for name in node.inputs)), env[node.inputs[0]].dtype)]
    else:
        outputs = references.run(node, seen, opset, noise is not None and noise.native, noise is not None and noise.other)
    if noise is None:
        return outputs
    if noise.light and node.outputs[0] in noise.weights and node.outputs[0] not in cone:
        outputs = [without_light(node, outputs[0], env, opset, noise.weights[node.outputs[0]])]
    outputs = [y if y is None else disturbed_result(y, node, kind, name in cone, env, noise) for name, y in zip(node.outputs, outputs)]
    if node.outputs[0] in noise.regrouped:
        outputs = [np.where(np.isnan(wide(y)), noise.rng.choice([-np.inf, np.inf, np.nan], y.shape), y).astype(y.dtype) for y in outputs]
    args = [env[name] if name else None for name in node.inputs]
    open_ = pointwise.undefined(node, args) if args and args[0] is not None else None
    y = outputs[0]
    overflows = overflowing(references, node, env, opset, y)
    for more in (overflows, poisoned(node, env, y), unfilled(node, env, y)):
        if more is not None:
            open_ = more if open_ is None else open_ | more
    if open_ is not None and np.any(open_):
        outputs[0] = np.where(open_, anything(noise.rng, y.shape, y.dtype), y).astype(y.dtype)
    return outputs


def anything(rng, shape, dtype):
    """Draws values for open elements: values of any kind, or only infinities, or only NaN, which an overflow can cause."""
    drawn = tensor(rng, shape, dtype, 'wild')
    if not is_float(dtype):
        return drawn
    kind = rng.integers(7)
    if kind < 3:
        return np.full(shape, (np.inf, -np.inf, np.nan)[kind])
    if kind < 5:
        return np.where(rng.random(shape) < (0.5 if kind == 3 else 0), rng.choice([-np.inf, np.inf]), wide(tensor(rng, shape, dtype)))
    return np.where(rng.random(shape) < 0.3, np.nan, wide(drawn))


def overflowing_products(node, env, result):
    """Returns a mask of products that may overflow or vanish in some order: products of their large or of their small factors."""
    x = env[node.inputs[0]]
    info = limits(F64 if x.dtype == F64 else F32)
    with np.errstate(all='ignore'):
        exponents = np.where(np.isfinite(wide(x)) & (x != 0), np.log2(np.abs(wide(x))), 0)
    large, small = np.maximum(exponents, 0), np.minimum(exponents, 0)
    if node.op == 'CumProd':
        # A scan in steps multiplies any neighbours, also ones after the element.
        axis = int(env[node.inputs[1]].reshape(-1)[0])
        total = lambda e: np.broadcast_to(e.sum(axis, keepdims=True), result.shape)
    else:
        total = lambda e: e.sum(**axes_of(node, env, x.ndim)).reshape(result.shape)
    return (total(large) > np.log2(float(info.max)) - 4) | (total(small) < np.log2(float(info.tiny)) + 4)


def overflowing_scores(node, finite, result, most):
    """Returns a mask of rows of attention whose scores or sums of values may overflow."""
    query, key, value = (finite[name] for name in node.inputs[:3])
    if value.max(initial=0) > most / 4:
        return np.ones(result.shape, bool)
    scores = query.max(-1, initial=0, keepdims=True) * key.max(initial=0) * query.shape[-1]
    return np.broadcast_to(~(4 * scores < most), result.shape)


def poisoned(node, env, result):
    """Returns a mask of channels with an infinite or NaN weight, since ONNX does not say whether padding is multiplied by it."""
    if node.op not in ('Conv', 'ConvTranspose'):
        return None
    weights, groups = env[node.inputs[1]], node.attrs.get('group', 1)
    parts = weights.reshape(groups, -1, *weights.shape[1:]) if node.op == 'ConvTranspose' else weights[:, None, None]
    bad = ~np.isfinite(wide(parts))
    bad = bad.any(axis=tuple(i for i in range(bad.ndim) if i not in (0, 2))).ravel()
    return np.broadcast_to(bad.reshape(1, -1, *[1] * (result.ndim - 2)), result.shape) if bad.any() else None


def unfilled(node, env, result):
    """Returns a mask of windows of an AveragePool with nothing but padding. Their mean is 0/0, which ONNX does not define."""
    if node.op != 'AveragePool' or node.attrs.get('count_include_pad', 0):
        return None
    node = explicit(node, env)
    image, size = env[node.inputs[0]].shape[2:], node.attrs['kernel_shape']
    ones = [1] * len(image)
    strides, dilations = node.attrs.get('strides', ones), node.attrs.get('dilations', ones)
    pads = node.attrs.get('pads', [0] * 2 * len(image))
    filled = np.ones(result.shape, bool)
    for axis, extent in enumerate(image):
        at = np.arange(result.shape[2 + axis])[:, None] * strides[axis] - pads[axis] + np.arange(size[axis]) * dilations[axis]
        inside = ((at >= 0) & (at < extent)).any(-1)
        filled &= inside.reshape([-1 if i == 2 + axis else 1 for i in range(result.ndim)])
    return ~filled


def vanishing(node, env, result, least):
    """Returns a mask of results that are roots of subnormal squares, or are divided by such a root."""
    if node.op in ROOTS:
        return np.abs(wide(result)) < least
    if node.op == 'LpNormalization' and node.attrs.get('p', 2) == 2:
        with np.errstate(all='ignore'):
            norm = np.sqrt((wide(env[node.inputs[0]]) ** 2).sum(node.attrs.get('axis', -1), keepdims=True))
        return np.broadcast_to(norm < least, result.shape)
    return None


def overflowing(references, node, env, opset, result):
    """Returns a mask of results that are open because terms overflow before they cancel or are divided, or None if none is open.

    The overflow may occur in one order of the terms or in several. Infinite and NaN terms do not count, because their
    effect does not depend on the order.
    """
    if node.op in PRODUCTS and result is not None and is_float(result.dtype):
        return overflowing_products(node, env, result)
    if node.op not in LINEAR | SQUARES | {'Attention'} or result is None or not is_float(result.dtype):
        return None
    read = {name: env[name] for name in node.reads()[:1 if node.op in SHAPED else None]}
    unit = F64 if result.dtype == F64 else F32
    most = float(np.finfo(unit).max)
    finite = {name: np.abs(np.where(np.isfinite(wide(v)), wide(v), 0)) for name, v in read.items() if is_float(v.dtype)}
    largest = max((v.max(initial=0) for v in finite.values()), default=0)
    small = vanishing(node, env, result, float(np.finfo(unit).tiny) ** 0.5 * 4096)
    if small is not None and small.any():
        return small
    # No sum of terms smaller than this overflows, since there are few products.
    if largest < most ** 0.45:
        return None
    if node.op == 'Attention':
        return overflowing_scores(node, finite, result, most)
    if node.op in ('Resize', 'GridSample'):
        # Cubic weights can be negative.
        return np.ones(result.shape, bool) if largest > most / 16 else None
    if node.op in ('ReduceL2', 'ReduceSumSquare', 'ReduceLogSum'):
        # The exponents are halved before the sum, because the squares of the largest float64 numbers overflow.
        power = 1 if node.op == 'ReduceLogSum' else 2
        terms = (finite[node.inputs[0]] / most ** (1 / power)) ** power
        return terms.sum(**axes_of(node, env, terms.ndim)).reshape(result.shape) > 1 / 16
    if node.op in SQUARES:
        return np.ones(result.shape, bool) if largest > (most / 4) ** 0.5 else None
    attrs = {k: abs(v) if k in ('alpha', 'beta') else v for k, v in node.attrs.items()}
    sizes = replace(node, attrs=attrs)
    try:
        with np.errstate(all='ignore'):
            seen = env | {name: v.astype(F64 if unit == F64 else env[name].dtype) for name, v in finite.items()}
            total = references.run(sizes, seen, opset)[0]
            # The terms of a mean are added before they are divided.
            count = max(v.size for v in finite.values()) if node.op in ('ReduceMean', 'AveragePool', 'GlobalAveragePool') else 1
            return ~(wide(total) * 4 * count < most)
    except Unable:
        return None


def whole(node, env):
    """Returns whether a sum is exact in any order because its terms are small whole numbers."""
    if node.op not in WHOLE_SUMS:
        return False
    values = [env[name] for name in node.reads()]
    floats = [wide(v) for v in values if is_float(v.dtype)]
    if not all(np.isfinite(v).all() and (v == np.rint(v)).all() for v in floats):
        return False
    most = [np.abs(v).max(initial=0) for v in floats]
    limit = min([2.0 ** {F32: 24, F64: 53, F16: 11, BF16: 8}[v.dtype] for v in values if is_float(v.dtype)], default=2.0**24)
    return all(float(a) == int(a) for a in (node.attrs.get('alpha', 1), node.attrs.get('beta', 1))) and \
        max((v.size for v in values), default=1) * (np.prod(most) + sum(most)) < limit


def disturbed_operand(value, noise, most):
    """Moves the terms of a sum by units of float32, since sums of 16-bit values are computed in float32 or better.

    Fast convolutions transform their operands first, which loses some more units.
    """
    if not is_float(value.dtype):
        return value
    unit = F64 if value.dtype == F64 else F32
    steps = noise.steps(value.shape, most)
    return stepped(value, steps, unit) if value.dtype in (F32, F64) else value


def absorbed(a, b, total):
    """Returns a mask of sums that equal one term in any order of rounding, because the other is far below the term's unit."""
    return np.minimum(np.abs(a), np.abs(b)) < spacing(wide(total), total.dtype) * 2.0**-10


def disturbed_result(value, node, kind, in_cone, env, noise):
    """Moves a result by the error that its op may have."""
    if not is_float(value.dtype):
        return value
    if node.op in ZERO_SIGN_OPEN:
        value = np.where(wide(value) == 0, noise.rng.choice([0.0, -0.0], value.shape), value).astype(value.dtype)
    if kind == MOVE or kind == EXACT and (noise.contract == 'exact' or in_cone):
        return value
    if node.op in WHOLE_SUMS and whole(node, env):
        return value
    if node.op in ('Add', 'Sub'):
        kept = absorbed(*(wide(env[name]) for name in node.inputs), value)
        return np.where(kept, value, stepped(value, noise.steps(value.shape, 1))).astype(value.dtype)
    unit = ABSOLUTE.get(node.op, 0.0)
    if node.op in RELATIVE:
        size = np.abs(wide(env[node.inputs[0]]))
        unit = RELATIVE[node.op] * size[np.isfinite(size)].max(initial=0.0)
    if node.op in CANCELLING:
        sizes = [np.abs(wide(env[name])) for name in node.reads() if is_float(env[name].dtype)]
        unit = CANCELLING[node.op] * spacing(max([1.0, *(v[np.isfinite(v)].max(initial=0.0) for v in sizes)]), value.dtype)
    if node.op in GATES:
        unit = GATES[node.op] * spacing(np.maximum(np.abs(wide(env[node.inputs[0]])), 1.0), value.dtype)
    if np.any(unit):
        moved = wide(value) + noise.steps(value.shape, 1.0) * unit
        # If a result may be 0, it is set to 0 sometimes, because it may be a divisor.
        zero = (np.abs(wide(value)) <= unit) & (noise.rng.random(value.shape) < 0.2)
        return narrow(np.where(zero, 0.0, moved), value.dtype)
    most = 2 if kind == ULP else 1
    if node.op == 'Gelu' and value.dtype == F64:
        # The reference rounds the argument of erfc. The logarithm of erfc is about the square of the argument.
        most = 2 + np.clip(np.nan_to_num(wide(env[node.inputs[0]])), -40, 40) ** 2
        return stepped(value, noise.steps(value.shape, 1) * most)
    return stepped(value, noise.steps(value.shape, most))
