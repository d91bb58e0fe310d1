"""Generators of reductions, norms, contractions and attention."""

import numpy as np

from ..builder import MOST, Skip
from ..values import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, INTS


def reduction(op, since, types=FLOATS):
    """Returns a generator of a reduction over some axes, all axes, or none."""
    def step(b):
        x = b.take(types)
        rank, keep = b.rank(x), b.int(0, 1)
        axes = [int(a) for a in b.rng.choice(rank, b.int(1, rank), replace=False)] if rank and b.chance(0.8) else None
        if op in ('ReduceMax', 'ReduceMin', 'ReduceMean', 'ReduceLogSum', 'ReduceLogSumExp') and b[x].size == 0:
            raise Skip
        if axes is None:
            return b.node(op, [x], keepdims=keep)
        axes = [a - rank if b.chance(0.4) else a for a in axes]
        return b.listed(op, x, axes, 'axes', since, keepdims=keep)
    return step


def softmax(op):
    """Returns a generator of Softmax or LogSoftmax."""
    def step(b):
        x = b.take(FLOATS, range(1, 6), where=lambda v: v.size)
        return b.node(op, [x], axis=b.axis(b.rank(x)))
    return step


def epsilon(b):
    """Draws an epsilon, or leaves it out."""
    return float(np.float32(b.choose([1e-5, 1e-3, 1e-12]))) if b.chance(0.6) else None


def layer_norm(b):
    """Adds a LayerNormalization over the last axes."""
    x = b.take((F32, F64, F16), range(1, 5), where=lambda v: v.size)
    axis = b.axis(b.rank(x))
    dims = b.dims(x)[axis:]
    return b.node('LayerNormalization', [x, b.fresh(dims, b[x].dtype), b.fresh(dims, b[x].dtype) if b.chance(0.6) else ''],
                  axis=axis, epsilon=epsilon(b))


def rms_norm(b):
    """Adds an RMSNormalization over the last axes."""
    x = b.take((F32, F64, F16), range(1, 5), where=lambda v: v.size)
    axis = b.axis(b.rank(x))
    return b.node('RMSNormalization', [x, b.fresh(b.dims(x)[axis:], b[x].dtype)], axis=axis, epsilon=epsilon(b))


def image(b, types=(F32,), ranks=(3, 4), most=7):
    """Returns an image [batch, channels, spatial axes]: an older value or a new one."""
    if b.chance(0.4):
        return b.take(types, ranks, where=lambda v: v.size, new=0.0)
    rank = b.choose(list(ranks))
    return b.fresh((b.int(1, 2), b.choose([1, 2, 3, 4, 6]), *[b.int(1, most) for _ in range(rank - 2)]), b.dtype(types))


def instance_norm(b):
    """Adds an InstanceNormalization."""
    x = image(b)
    c = b.dims(x)[1]
    return b.node('InstanceNormalization', [x, b.fresh((c,), b[x].dtype), b.fresh((c,), b[x].dtype)], epsilon=epsilon(b))


def group_norm(b):
    """Adds a GroupNormalization of an op set in which scales are per channel."""
    if b.opset < 21:
        raise Skip
    x = image(b)
    c = b.dims(x)[1]
    groups = b.choose([g for g in range(1, c + 1) if c % g == 0])
    return b.node('GroupNormalization', [x, b.fresh((c,), b[x].dtype), b.fresh((c,), b[x].dtype)], num_groups=groups, epsilon=epsilon(b))


def batch_norm(b):
    """Adds a BatchNormalization at inference."""
    x = image(b)
    c = b.dims(x)[1]
    params = [b.fresh((c,), b[x].dtype) for _ in range(3)]
    variance = b.leaf(np.abs(b.rng.standard_normal(c)).astype(b[x].dtype))
    return b.node('BatchNormalization', [x, *params, variance], epsilon=epsilon(b))


def lp_norm(b):
    """Adds an LpNormalization."""
    x = b.take((F32, F64), range(1, 5), where=lambda v: v.size)
    return b.node('LpNormalization', [x], axis=b.axis(b.rank(x)), p=b.int(1, 2))


def mean_variance(b):
    """Adds a MeanVarianceNormalization."""
    x = image(b, ranks=(4,))
    return b.node('MeanVarianceNormalization', [x])


def lrn(b):
    """Adds an LRN of an odd size."""
    return b.node('LRN', [image(b, ranks=(4,))], size=b.choose([1, 3, 5]), alpha=float(np.float32(b.choose([1e-4, 0.5]))), beta=0.75, bias=1.0)


def matmul(b):
    """Adds a MatMul of vectors, matrices, or batches that broadcast."""
    x = b.take(FLOATS, range(1, 5))
    k = b.dims(x)[-1]
    if b.chance(0.15):
        return b.node('MatMul', [x, b.fresh((k,), b[x].dtype)])
    n = b.choose([1, 2, 3, 5, 8, 17])
    batch = b.broadcast(b.dims(x)[:-2]) if b.chance(0.5) else ()
    y = b.fresh((*batch, k, n), b[x].dtype)
    if np.prod(np.broadcast_shapes(batch, b.dims(x)[:-2]), dtype=int) * n > MOST:
        raise Skip
    return b.node('MatMul', [x, y])


def gemm(b):
    """Adds a Gemm with any transpositions. The third operand may have any shape that broadcasts."""
    x = b.take(FLOATS, (2,))
    ta, tb, n = b.int(0, 1), b.int(0, 1), b.choose([1, 2, 3, 8])
    m, k = b.dims(x) if not ta else b.dims(x)[::-1]
    y = b.fresh((n, k) if tb else (k, n), b[x].dtype)
    c = b.fresh(b.choose([(), (n,), (1, n), (m, 1), (m, n)]), b[x].dtype) if b.chance(0.7) else ''
    scale = lambda: b.choose([None, 0.5, 2.0, 0.0, -1.0, float(np.float32(0.3))])
    return b.node('Gemm', [x, y, c], transA=ta, transB=tb, alpha=scale(), beta=scale())


_EINSUMS = ['ij,jk->ik', 'bij,bjk->bik', 'ij->ji', 'ij,ij->', 'bij,bkj->bik', 'i,j->ij', 'bhid,bhjd->bhij', 'ij->i', '...ij,...jk->...ik', 'ij,j', 'abc,cd->abd']


def einsum(b):
    """Adds an Einsum of a common equation."""
    equation = b.choose(_EINSUMS)
    extents, dtype = {}, b.dtype((F32, F64))
    terms = equation.split('->')[0].replace('...', 'Z').split(',')
    dims = lambda term: [extents.setdefault(letter, b.int(1, 5)) for letter in term]
    return b.node('Einsum', [b.fresh(dims(term), dtype) for term in terms], equation=equation)


def attention(b):
    """Adds an Attention of op set 23 with grouped heads, masks of truth values or numbers, causal masks, or soft caps."""
    batch, heads, q, k, d, dv = b.int(1, 2), b.choose([1, 2, 4]), b.int(1, 5), b.int(1, 6), b.choose([1, 4, 8]), b.choose([2, 4])
    shared = b.choose([h for h in (1, 2, 4) if heads % h == 0])
    dtype, mood = F32, 'tame' if b.chance(0.7) else b.mood
    make = lambda h, rows, width: b.fresh((batch, h, rows, width), dtype, constant=False, mood=mood)
    mask = ''
    if b.chance(0.6):
        dims = b.choose([(q, k), (1, 1, q, k), (batch, 1, q, k), (batch, heads, q, k)])
        keep = b.rng.random(dims) < 0.6
        mask = b.leaf(keep if b.chance(0.5) else np.where(keep, 0, b.choose([-np.inf, -1e9])).astype(dtype), constant=False)
    return b.node('Attention', [make(heads, q, d), make(shared, k, d), make(shared, k, dv), mask],
                  is_causal=b.int(0, 1), scale=b.choose([None, 0.5]), softcap=b.choose([None, None, 2.0]))


def rotary(b):
    """Adds a RotaryEmbedding of all or some channels."""
    batch, heads, rows, width = b.int(1, 2), b.int(1, 3), b.int(1, 4), b.choose([2, 4, 8])
    part = b.choose([0, 2]) if width > 2 else 0
    half = (part or width) // 2
    angles = b.rng.uniform(-3, 3, (batch, rows, half))
    table = lambda f: b.leaf(f(angles).astype(F32))
    return b.node('RotaryEmbedding', [b.fresh((batch, heads, rows, width), F32), table(np.cos), table(np.sin)],
                  interleaved=b.int(0, 1), rotary_embedding_dim=part or None)


_SOME_INTS = FLOATS + (I32, I64)

STEPS = {
    'ReduceSum': reduction('ReduceSum', 13, _SOME_INTS), 'ReduceMean': reduction('ReduceMean', 18),
    'ReduceMax': reduction('ReduceMax', 18, _SOME_INTS), 'ReduceMin': reduction('ReduceMin', 18, _SOME_INTS),
    'ReduceProd': reduction('ReduceProd', 18, _SOME_INTS), 'ReduceL1': reduction('ReduceL1', 18, _SOME_INTS),
    'ReduceL2': reduction('ReduceL2', 18), 'ReduceLogSum': reduction('ReduceLogSum', 18),
    'ReduceSumSquare': reduction('ReduceSumSquare', 18, _SOME_INTS), 'ReduceLogSumExp': reduction('ReduceLogSumExp', 18),
    'Softmax': softmax('Softmax'), 'LogSoftmax': softmax('LogSoftmax'), 'LayerNormalization': layer_norm, 'RMSNormalization': rms_norm,
    'InstanceNormalization': instance_norm, 'GroupNormalization': group_norm, 'BatchNormalization': batch_norm,
    'LpNormalization': lp_norm, 'MeanVarianceNormalization': mean_variance, 'LRN': lrn, 'MatMul': matmul, 'Gemm': gemm,
    'Einsum': einsum, 'Attention': attention, 'RotaryEmbedding': rotary,
}
