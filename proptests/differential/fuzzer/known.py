"""Known faults of the references, as data: the cases in which a reference is wrong, and the reasons."""

import numpy as np

from .values import is_float


def _nan(node, values):
    return any(is_float(v.dtype) and not np.isfinite(v.astype(np.float64)).all() for v in values.values())


def _always(node, values):
    return True


def _empty(node, values):
    return any(v.size == 0 for v in values.values())


def _ordered_by_nan(node, values):
    return node.attrs.get('reduction') in ('max', 'min') and _nan(node, values)


def _one_element(node, values):
    """Returns whether Resize in mode pytorch_half_pixel makes an axis of one element."""
    if node.attrs.get('coordinate_transformation_mode') != 'pytorch_half_pixel':
        return False
    dims = values[node.inputs[0]].shape
    if len(node.inputs) > 3:
        return bool((values[node.inputs[3]] == 1).any())
    scales = values[node.inputs[-1]]
    return len(scales) == len(dims) and any(int(n * s) == 1 for n, s in zip(dims, scales))


# (op, reference, condition for the fault, reason)
FAULTS = [
    ('ConvTranspose', 'reference', lambda n, v: n.attrs.get('group', 1) > 1 and len(n.inputs) > 2, 'each group has the bias of the first'),
    ('MaxPool', 'ort', _nan, 'whether NaN in a window is kept depends on the order of comparisons'),
    ('MaxPool', 'reference', _nan, 'NaN in a window is not kept'),
    ('AveragePool', 'reference', _nan, 'NaN in a window is not kept'),
    ('LpPool', 'reference', _nan, 'NaN in a window is not kept'),
    ('Resize', 'ort', lambda n, v: n.attrs.get('coordinate_transformation_mode') == 'align_corners' and len(n.inputs) < 4,
     'align_corners by scales computes the extent from the rounded size'),
    ('Resize', 'reference', _one_element, 'pytorch_half_pixel reads an axis of one element at −1/2, where ONNX says 0'),
    ('LRN', 'reference', _always, 'the window is off by one for an even size, and the op is slow'),
    *((op, reference, _ordered_by_nan, 'the order determines whether NaN or a number is kept, and no document specifies the order')
      for op in ('ScatterElements', 'ScatterND') for reference in ('ort', 'reference')),
    *((op, 'ort', _nan, 'a NaN is dropped unless it is the first') for op in ('ReduceMax', 'ReduceMin')),
    ('ReduceSum', 'ort', lambda n, v: not is_float(v[n.inputs[0]].dtype), 'sums of integers saturate'),
    ('ReduceProd', 'ort', lambda n, v: not is_float(v[n.inputs[0]].dtype), 'products of integers saturate'),
    ('ReduceSumSquare', 'ort', lambda n, v: not is_float(v[n.inputs[0]].dtype), 'sums of integers saturate'),
    ('ReduceMean', 'ort', lambda n, v: not is_float(v[n.inputs[0]].dtype), 'sums of integers saturate'),
    ('ReduceL1', 'ort', lambda n, v: not is_float(v[n.inputs[0]].dtype), 'sums of integers saturate'),
    ('TensorScatter', 'reference', _always, 'rows of a batch after the first are written into the first'),
    ('Attention', 'ort', _always, 'rows without keys are NaN, and masks are added to the scores that they hide'),
    ('Attention', 'reference', _always, 'causal attention with a mask of truth values is NaN everywhere (0 times -inf)'),
]

# Ops for which it is enough to agree with one of the references, since the specification allows both results.
EITHER = {
    'Resize': 'a position between two elements is rounded up or down, depending on the rounding of the scale',
    'GridSample': 'a position between two elements is rounded up or down; a position outside is moved to the border before or after cubic weights',
}

# The order in which references are used.
PREFERENCE = {'RotaryEmbedding': ('reference', 'ort')}


def order(node, values):
    """Returns the references that are usable for a node, the best first."""
    wrong = {reference for op, reference, when, _ in FAULTS if op == node.op and when(node, values)}
    return [name for name in PREFERENCE.get(node.op, ('ort', 'reference')) if name not in wrong]


def either_is_right(node):
    """Returns the reason why it is enough to agree with one of the references, or None."""
    return EITHER.get(node.op)
