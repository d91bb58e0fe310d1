"""Generators of convolutions, pools, resizing and sampling."""

import numpy as np

from ..builder import Skip
from ..values import F32, F64
from .reductions import image


def window(b, x, most=3, dilate=True):
    """Draws a window for the spatial axes: kernel, strides, dilations, and explicit or automatic padding."""
    spatial = b.dims(x)[2:]
    kernel = [b.int(1, most) for _ in spatial]
    attrs = {'kernel_shape': kernel}
    if b.chance(0.6):
        attrs['strides'] = [b.int(1, 3) for _ in spatial]
    dilations = [1] * len(spatial)
    if dilate and b.chance(0.3):
        attrs['dilations'] = dilations = [b.int(1, 2) for _ in spatial]
    if b.chance(0.3):
        attrs['auto_pad'] = b.choose(['SAME_UPPER', 'SAME_LOWER', 'VALID'])
    elif b.chance(0.6):
        attrs['pads'] = [b.int(0, max(0, k - 1)) for _ in range(2) for k in kernel]
    pads = attrs.get('pads', [0] * 2 * len(spatial))
    if not str(attrs.get('auto_pad', '')).startswith('SAME'):
        for i, d in enumerate(spatial):
            if d + pads[i] + pads[i + len(spatial)] < (kernel[i] - 1) * dilations[i] + 1:
                raise Skip
    return attrs


def conv(b):
    """Adds a Conv with groups. Some have 64 channels, which Winograd convolutions need."""
    if b.chance(0.04):
        x = b.fresh((1, 64, b.int(6, 12), b.int(6, 12)), F32, constant=False)
        attrs, groups, out = {'kernel_shape': [3, 3], 'pads': [1, 1, 1, 1]}, 1, 64
    else:
        x = image(b)
        attrs, c = window(b, x), b.dims(x)[1]
        groups = b.choose([g for g in range(1, c + 1) if c % g == 0])
        out = groups * b.int(1, 3)
    w = b.fresh((out, b.dims(x)[1] // groups, *attrs['kernel_shape']), b[x].dtype)
    bias = b.fresh((out,), b[x].dtype) if b.chance(0.5) else ''
    return b.node('Conv', [x, w, bias], group=groups, **attrs)


def conv_transpose(b):
    """Adds a ConvTranspose with groups and output padding."""
    x = image(b, most=5)
    c = b.dims(x)[1]
    attrs = window(b, x)
    if 'auto_pad' in attrs and b.chance(0.7):
        del attrs['auto_pad']
    groups = b.choose([g for g in range(1, c + 1) if c % g == 0])
    out = b.int(1, 2)
    if b.chance(0.3) and 'strides' in attrs:
        attrs['output_padding'] = [b.int(0, s - 1) for s in attrs['strides']]
    w = b.fresh((c, out, *attrs['kernel_shape']), b[x].dtype)
    bias = b.fresh((out * groups,), b[x].dtype) if b.chance(0.5) else ''
    return b.node('ConvTranspose', [x, w, bias], group=groups, **attrs)


def ceil_mode(b, since):
    """Returns whether extents are rounded up, at random if the op set supports it."""
    return b.int(0, 1) if b.opset >= since else None


def max_pool(b):
    """Adds a MaxPool."""
    x = image(b, (F32, F64))
    return b.node('MaxPool', [x], ceil_mode=ceil_mode(b, 10), **window(b, x, dilate=b.opset >= 10))


def average_pool(b):
    """Adds an AveragePool whose divisors may include the padding."""
    x = image(b)
    return b.node('AveragePool', [x], ceil_mode=ceil_mode(b, 10), count_include_pad=b.int(0, 1), **window(b, x, dilate=b.opset >= 19))


def lp_pool(b):
    """Adds an LpPool."""
    x = image(b)
    return b.node('LpPool', [x], p=b.int(1, 2), **window(b, x, dilate=b.opset >= 18))


def over_all(op):
    """Returns a generator of a pool over all spatial axes."""
    return lambda b: b.node(op, [image(b)])


def resize(b):
    """Adds a Resize by scales or to sizes, in any supported mode."""
    x = image(b, ranks=(4,), most=5)
    mode = b.choose(['nearest', 'linear', 'cubic'])
    how = b.choose(['half_pixel', 'asymmetric', 'align_corners', 'pytorch_half_pixel'])
    attrs = {'mode': mode, 'coordinate_transformation_mode': how}
    if mode == 'nearest':
        attrs['nearest_mode'] = b.choose(['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'])
    if mode == 'cubic' and b.chance(0.5):
        attrs['cubic_coeff_a'] = b.choose([-0.5, -0.75])
    if b.chance(0.5):
        sizes = [*b.dims(x)[:2], *[b.int(1, 9) for _ in b.dims(x)[2:]]]
        return b.node('Resize', [x, '', '', b.const(sizes)], **attrs)
    scales = [1.0, 1.0, *[b.choose([2.0, 1.5, 0.5, 3.0, 0.7, 1.0, 1.25]) for _ in b.dims(x)[2:]]]
    if any(int(np.floor(d * s)) < 1 for d, s in zip(b.dims(x), scales)):
        raise Skip
    return b.node('Resize', [x, '', b.const(scales, F32)], **attrs)


def upsample(b):
    """Adds an Upsample, which exists in op sets 7 to 9."""
    if b.opset > 9:
        raise Skip
    return b.node('Upsample', [image(b, ranks=(4,)), b.const([1, 1, b.int(1, 3), b.int(1, 3)], F32)], mode='nearest')


def grid_sample(b):
    """Adds a GridSample in any mode."""
    x = image(b, ranks=(4,), most=5)
    grid = b.leaf(b.rng.uniform(-1.3, 1.3, (b.dims(x)[0], b.int(1, 4), b.int(1, 4), 2)).astype(F32))
    modes = ['linear', 'nearest', 'cubic'] if b.opset >= 20 else ['bilinear', 'nearest', 'bicubic']
    return b.node('GridSample', [x, grid], mode=b.choose(modes), padding_mode=b.choose(['zeros', 'border', 'reflection']), align_corners=b.int(0, 1))


STEPS = {
    'Conv': conv, 'ConvTranspose': conv_transpose, 'MaxPool': max_pool, 'AveragePool': average_pool, 'LpPool': lp_pool,
    'GlobalAveragePool': over_all('GlobalAveragePool'), 'GlobalMaxPool': over_all('GlobalMaxPool'), 'Resize': resize,
    'Upsample': upsample, 'GridSample': grid_sample,
}
