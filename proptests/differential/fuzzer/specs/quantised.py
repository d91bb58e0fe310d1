"""Generators of ops on quantised tensors. Scales are powers of two, so that multiplication rounds equally in each order."""

from ..values import F32, I8, U8
from .spatial import window

# Sums of pairs of numbers up to this fit into 16 bits. Some processors saturate larger sums.
LIMIT = 30


def packed(b, shape, dtype):
    """Adds a tensor of small integers."""
    return b.leaf(b.rng.integers(0 if dtype == U8 else -LIMIT // 2, LIMIT, shape).astype(dtype))


def scale(b, shape=()):
    """Adds scales."""
    return b.leaf((2.0 ** b.rng.integers(-6, 2, shape)).astype(F32), constant=True)


def zero(b, dtype, shape=()):
    """Adds zero points."""
    return b.leaf(b.rng.integers(0, 9, shape).astype(dtype), constant=True)


def matrices(b):
    """Adds the operands of a product, which are sometimes batched."""
    m, k, n = b.int(1, 5), b.int(1, 9), b.int(1, 5)
    batch = (b.int(1, 3),) if b.chance(0.3) else ()
    x_type, w_type = b.choose([(U8, U8), (U8, I8), (I8, I8)])
    return packed(b, (*batch, m, k), x_type), packed(b, (k, n), w_type)


def matmul_integer(b):
    """Adds a MatMulInteger with or without zero points."""
    x, w = matrices(b)
    of_x = zero(b, b[x].dtype) if b.chance(0.6) else ''
    of_w = zero(b, b[w].dtype, b.choose([(), b.dims(w)[1:]])) if b.chance(0.6) else ''
    return b.node('MatMulInteger', [x, w, of_x, of_w])


def qlinear_matmul(b):
    """Adds a QLinearMatMul."""
    x, w = matrices(b)
    columns = b.choose([(), b.dims(w)[1:]])
    of_x, of_w = [scale(b), zero(b, b[x].dtype)], [scale(b, columns), zero(b, b[w].dtype, columns)]
    return b.node('QLinearMatMul', [x, *of_x, w, *of_w, scale(b), zero(b, b[x].dtype)])


def convolution(b):
    """Adds the operands of a convolution. Returns them and its attributes."""
    x = packed(b, (b.int(1, 2), b.int(1, 4), *(b.int(3, 7) for _ in range(2))), U8)
    attrs, channels = window(b, x), b.dims(x)[1]
    groups = b.choose([g for g in range(1, channels + 1) if channels % g == 0])
    out = groups * b.int(1, 3)
    w = packed(b, (out, channels // groups, *attrs['kernel_shape']), b.choose([U8, I8]))
    return x, w, out, {'group': groups, **attrs}


def conv_integer(b):
    """Adds a ConvInteger with or without zero points."""
    x, w, _, attrs = convolution(b)
    return b.node('ConvInteger', [x, w, zero(b, U8) if b.chance(0.6) else '', zero(b, b[w].dtype) if b.chance(0.6) else ''], **attrs)


def qlinear_conv(b):
    """Adds a QLinearConv with scales of the tensor or of each channel, and sometimes with a bias."""
    x, w, out, attrs = convolution(b)
    of_w = [scale(b, b.choose([(), (out,)])), zero(b, b[w].dtype)]
    bias = b.leaf(b.rng.integers(-50, 50, (out,)).astype('int32'), constant=True) if b.chance(0.5) else ''
    return b.node('QLinearConv', [x, scale(b), zero(b, U8), w, *of_w, scale(b), zero(b, U8), bias], **attrs)


def dynamic(b):
    """Adds a DynamicQuantizeLinear of finite numbers."""
    return b.node('DynamicQuantizeLinear', [b.fresh(b.shape(), F32, mood='tame')], outputs=3)[0]


STEPS = {
    'MatMulInteger': matmul_integer, 'QLinearMatMul': qlinear_matmul, 'ConvInteger': conv_integer, 'QLinearConv': qlinear_conv,
    'DynamicQuantizeLinear': dynamic,
}
