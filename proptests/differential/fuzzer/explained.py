"""Explained disagreements, as data: programs that the engine refuses on purpose, and results that contracts leave open."""

import re

import numpy as np

from .values import is_float


def _beyond(case, power):
    """Says whether an element of a leaf is beyond 2 to a power, or within its reciprocal."""
    values = [np.abs(v.astype(np.float64)) for v in case.leaves().values() if is_float(v.dtype)]
    finite = [v[np.isfinite(v) & (v != 0)] for v in values]
    return any(((v > 2.0**power) | (v < 2.0**-power)).any() for v in finite)


def _products(case):
    return any(node.op in ('CumProd', 'ReduceProd') for node in case.nodes) and _beyond(case, 20)


def _scores(case):
    return {'MatMul', 'Softmax'} <= {node.op for node in case.nodes} and _beyond(case, 40)


def _hidden_scores(case):
    """Says whether scores may overflow under a finite number that stands for -inf (`eutectic_ir::bounded::hides`)."""
    leaves = [v for v in case.leaves().values() if is_float(v.dtype)]
    least = [v.astype(np.float64) for v in leaves if v.size]
    return {'MatMul', 'Softmax'} <= {node.op for node in case.nodes} and any((np.isfinite(v) & (v <= -2.0**117)).any() for v in least)


def _resized(case):
    return any(node.op in ('Resize', 'Upsample') for node in case.nodes)


# (contract or None, sorts of failure, pattern of the message, condition on the case, reason)
EXPLAINED = [
    (None, ('infinity made', 'NaN made', 'infinity lost', 'NaN lost', 'value'), '', _products,
     'a product in another order overflows or vanishes on the way; contracts promise nothing beyond 2^40, and ONNX no order'),
    ('default', ('infinity lost', 'NaN lost'), '', _hidden_scores,
     'a finite number that stands for -inf hides a score of inf or NaN in attention; a sum with it would keep the score'),
    ('default', ('infinity made', 'NaN made', 'infinity lost', 'NaN lost', 'value'), '', _scores,
     'attention scales scores after their product, which overflows; contracts promise nothing for products beyond 2^40'),
    (None, ('NaN lost',), '', _resized,
     'Resize does not read an element whose weight is 0; the references multiply it by 0'),
    (None, ('refused',), 'beyond once', lambda case: True, 'Pad in mode reflect or wrap beyond once is refused, which the message says'),
]


def explain(case, kind, detail, mode):
    """Returns why a disagreement is right, or None."""
    for contract, sorts, pattern, condition, reason in EXPLAINED:
        if contract in (None, mode) and kind in sorts and re.search(pattern, detail) and condition(case):
            return reason
    return None
