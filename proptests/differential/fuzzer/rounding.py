"""Rounding to element types, and steps of one unit in the last place."""

import ml_dtypes
import numpy as np

from .values import BF16, F32, F64, is_float


def narrow(x, dtype):
    """Rounds float64 values once to an element type."""
    x = np.asarray(x)
    with np.errstate(all='ignore'):
        if dtype != BF16 or x.dtype != F64:
            return x.astype(dtype)
        # Rounding to odd in float32 keeps the bits that the second rounding needs.
        near = x.astype(F32)
        even = (near.view(np.uint32) & 1) == 0
        inexact = np.isfinite(near) & np.isfinite(x) & (near.astype(F64) != x)
        toward = np.where(x > near.astype(F64), np.float32(np.inf), np.float32(-np.inf))
        return np.where(inexact & even, np.nextafter(near, toward), near).astype(BF16)


def wide(x):
    """Returns floating-point values as float64."""
    return np.asarray(x).astype(F64)


def spacing(x, dtype):
    """Returns the distance from the absolute values of `x` (float64) to the next number of an element type."""
    info = ml_dtypes.finfo(dtype)
    x = np.minimum(np.abs(np.nan_to_num(x, nan=0.0, posinf=float(info.max))), float(info.max))
    exponent = np.floor(np.log2(np.maximum(x, float(info.tiny))))
    return np.maximum(np.exp2(exponent) * float(info.eps), float(info.smallest_subnormal))


def stepped(x, steps, unit=None):
    """Moves finite, nonzero numbers by a number of units in the last place of their type, or of the type `unit`."""
    if not is_float(x.dtype):
        return x
    with np.errstate(all='ignore'):
        value = wide(x)
        moved = narrow(value + steps * spacing(value, unit or x.dtype), x.dtype)
        keep = ~np.isfinite(value) | (value == 0) | ~np.isfinite(wide(moved))
        return np.asarray(np.where(keep, x, moved)).astype(x.dtype)


def keys(x):
    """Returns integers in the order of floating-point numbers. −0 and 0 differ, and all NaN are equal."""
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    raw = np.ascontiguousarray(x).view(bits).reshape(x.shape).astype(np.int64)
    least = np.iinfo(bits).min
    ordered = np.where(raw < 0, least - 1 - raw, raw) if bits is not np.int64 else np.where(raw < 0, np.int64(-1) - (raw ^ least), raw)
    return np.where(np.isnan(wide(x)), np.iinfo(np.int64).max, ordered)


def same_bits(a, b):
    """Returns where two arrays of one type have the same bits. The sign and payload of NaN are ignored."""
    if not is_float(a.dtype):
        return a == b
    return keys(a) == keys(b)
