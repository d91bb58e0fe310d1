"""Corrects Resize of values that are not finite. The references multiply by weight 0, but such elements must not be read."""

from dataclasses import replace

import numpy as np

from .rounding import narrow, wide
from .values import F32, I64, is_float

# A weight below this is a rounding error of a position that coincides with an element.
LEAST = 2.0**-17


def without_unread(run, node, env, result, loose=False):
    """Returns the result of a Resize or Upsample in which an element is read only where its weight is not 0.

    `run` computes a node by a reference. With `loose`, what rounding or ONNX leave open is as another engine may have it: small weights
    are 0, and the weights of a cubic are not added where its places beyond the border are one infinite element.
    The result stays as it is where the operand is finite, or has no images.
    """
    x = env[node.inputs[0]]
    if not is_float(x.dtype) or np.isfinite(wide(x)).all() or result.shape[:2] != x.shape[:2] or x.ndim < 3 or 'axes' in node.attrs:
        return result
    bad = ~np.isfinite(wide(x))
    y = wide(run(node, {**env, node.inputs[0]: np.where(bad, 0, x).astype(x.dtype)})[0]).copy()
    image = x.shape[2:]
    flat = bad.reshape(*x.shape[:2], -1)
    places = np.flatnonzero(flat.any(axis=(0, 1)))
    rows = dict(zip(places, weights(run, node, env, places, image, result.shape[2:])))
    border = {at for at in places if any(i in (0, n - 1) for i, n in zip(np.unravel_index(at, image), image))}
    unadded = border if loose and node.attrs.get('mode') == 'cubic' else ()
    with np.errstate(all='ignore'):
        for n, c, at in np.argwhere(flat):
            value = wide(x).reshape(*x.shape[:2], -1)[n, c, at]
            weight = rows[at]
            terms = np.nan if at in unadded else value * weight
            # Adding 0 would change the sign of a zero.
            y[n, c] = np.where(np.abs(weight) <= (LEAST if loose else 0.0), y[n, c], y[n, c] + terms)
    return narrow(y, result.dtype)


def weights(run, node, env, places, image, extents):
    """Returns the weights of some elements of an image in each element of the reference's result."""
    # Extents of 1 are a special case of some modes and have known faults.
    rows = max(len(places), 2)
    basis = np.zeros((rows, 2, int(np.prod(image))))
    basis[np.arange(len(places)), :, places] = 1
    given = {node.inputs[0]: basis.reshape(rows, 2, *image).astype(F32)}
    if len(node.inputs) > 3 and node.inputs[3]:
        given[node.inputs[3]] = np.array([rows, 2, *extents], I64)
    # Sessions are kept by node, and this node has operands of its own.
    return wide(run(replace(node), {**env, **given})[0])[:len(places), 0]
