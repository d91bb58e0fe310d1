"""Draws random tensors: ordinary numbers, whole numbers, decimals, limits, and special values."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = np.dtype('float16'), np.dtype('float32'), np.dtype('float64')
I8, U8, I32, U32, I64 = (np.dtype(name) for name in ('int8', 'uint8', 'int32', 'uint32', 'int64'))
BOOL = np.dtype(bool)

FLOATS = (F32, F64, F16, BF16)
INTS = (I64, I32, I8, U8, U32)
TYPES = FLOATS + INTS + (BOOL,)

# For each mood, the share of tensors with special values, and the share of special elements in such a tensor.
MOODS = {'tame': (0.0, 0.0), 'mixed': (0.35, 0.2), 'wild': (0.8, 0.5)}


def is_float(dtype):
    """Returns whether an element type is a floating-point type, including bfloat16."""
    return np.dtype(dtype) in FLOATS


def limits(dtype):
    """Returns the finite limits of an element type."""
    return ml_dtypes.finfo(dtype) if is_float(dtype) else np.iinfo(dtype)


def specials(dtype):
    """Returns the special values of a floating-point type."""
    info = limits(dtype)
    tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    return np.array([
        np.nan, np.inf, -np.inf, 0.0, -0.0, least, -least, tiny / 2, tiny, -tiny, most, -most,
        float(info.eps), 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 1 + float(info.eps), 1 - float(info.eps) / 2,
    ])


def ordinary(rng, shape, dtype):
    """Draws finite numbers of common magnitudes."""
    kind = rng.integers(8)
    if kind <= 2:
        x = rng.standard_normal(shape)
    elif kind == 3:
        x = rng.integers(-6, 7, shape).astype(float)
    elif kind == 4:
        x = rng.integers(1, 130, shape).astype(float)
    elif kind == 5:
        x = np.round(rng.uniform(-9, 9, shape), 2)
    elif kind == 6:
        x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3)
    else:
        x = np.where(rng.random(shape) < 0.4, 0.0, rng.standard_normal(shape))
    return np.asarray(x).astype(dtype)


def floats(rng, shape, dtype, mood='tame'):
    """Draws a tensor of a floating-point type. `mood` determines how many values are special."""
    x = ordinary(rng, shape, dtype)
    share, density = MOODS[mood]
    if rng.random() >= share:
        return x
    pool = specials(dtype)
    kind = rng.integers(4)
    if kind == 0:
        pool = pool[np.isfinite(pool)]
    elif kind == 1:
        pool = pool[rng.integers(len(pool)):][:1]
    elif kind == 2 and mood == 'wild':
        # Numbers of every magnitude.
        info = limits(dtype)
        span = np.log2(float(info.max)), np.log2(float(info.smallest_subnormal))
        wide = np.exp2(rng.uniform(span[1], span[0], shape)) * rng.choice([-1.0, 1.0], shape)
        return np.asarray(wide).astype(dtype)
    hit = rng.random(shape) < density
    with np.errstate(all='ignore'):
        return np.asarray(np.where(hit, rng.choice(pool, shape), x.astype(float))).astype(dtype)


def integers(rng, shape, dtype, mood='tame'):
    """Draws integers, including the limits of their type."""
    info = np.iinfo(dtype)
    low, high = max(info.min, -9), min(info.max, 9)
    x = rng.integers(low, high + 1, shape).astype(dtype)
    share, density = MOODS[mood]
    if rng.random() >= share:
        return x
    pool = [info.min, info.max, info.min + 1, info.max - 1, 0, 1, info.max // 2 + 1]
    if info.bits == 64:
        pool += [2**53 + 1, -2**53 - 1, 2**31, -2**31 - 1]
    hit = rng.random(shape) < density
    return np.asarray(np.where(hit, rng.choice(np.array(pool, dtype), shape), x)).astype(dtype)


def tensor(rng, shape, dtype, mood='tame'):
    """Draws a tensor of any element type."""
    if dtype == BOOL:
        return np.asarray(rng.random(shape) < rng.choice([0.1, 0.5, 0.9]))
    return floats(rng, shape, dtype, mood) if is_float(dtype) else integers(rng, shape, dtype, mood)


def shape(rng, rank=None, most=64):
    """Draws a shape of rank 0 to 5 and at most `most` elements. Dims may be 1, odd, or sometimes 0."""
    if rank is None:
        rank = int(rng.choice(6, p=[0.05, 0.2, 0.3, 0.25, 0.15, 0.05]))
    pool, p = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 0], [14, 15, 15, 10, 10, 8, 7, 6, 4, 4, 2, 1]
    dims = [int(d) for d in rng.choice(pool, rank, p=np.array(p) / sum(p))]
    while np.prod([max(d, 1) for d in dims]) > most:
        at = int(np.argmax(dims))
        dims[at] = max(1, dims[at] // 2)
    return tuple(dims)
