"""Replaces automatic padding by explicit padding. Both references compute SAME wrongly in some cases.

The cases are dilations, strides beyond the kernel, and transposed convolutions.
"""

from dataclasses import replace

# The number of the kernel operand, for ops whose attributes may lack its dims.
_KERNEL = {'Conv': 1, 'ConvInteger': 1, 'ConvTranspose': 1, 'QLinearConv': 3}
WINDOWED = {*_KERNEL, 'MaxPool', 'AveragePool', 'LpPool'}


def explicit(node, values):
    """Returns a node with explicit padding in place of `auto_pad`. Nodes without SAME are unchanged."""
    auto = node.attrs.get('auto_pad', 'NOTSET')
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if node.op not in WINDOWED or not auto.startswith('SAME') or 'output_shape' in node.attrs:
        return node
    image = values[node.inputs[0]].shape[2:]
    kernel = node.attrs.get('kernel_shape') or values[node.inputs[_KERNEL[node.op]]].shape[2:]
    ones = [1] * len(image)
    strides, dilations = node.attrs.get('strides', ones), node.attrs.get('dilations', ones)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if node.op == 'ConvTranspose':
        more = node.attrs.get('output_padding', [0] * len(image))
        totals = [s * (n - 1) + m + span - s * n for n, s, m, span in zip(image, strides, more, spans)]
        if min(totals) < 0:
            # See `transposed`.
            return node
    else:
        totals = [max(0, (-(-n // s) - 1) * s + span - n) for n, s, span in zip(image, strides, spans)]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    attrs = {k: v for k, v in node.attrs.items() if k not in ('auto_pad', 'ceil_mode')}
    pads = less + more if auto == 'SAME_UPPER' else more + less
    return replace(node, attrs={**attrs, 'pads': pads})


def transposed(node, shapes):
    """Returns the amounts that a ConvTranspose with SAME cuts off before and after each axis, or None if none is negative.

    The amounts exclude the `output_padding`. A result has `stride` times the extent of the operand. ONNX halves the difference.
    A negative half is rounded down, as in the reference evaluator.
    """
    auto = node.attrs.get('auto_pad', 'NOTSET')
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if not auto.startswith('SAME') or 'output_shape' in node.attrs:
        return None
    image, kernel = shapes[0][2:], shapes[1][2:]
    ones = [1] * len(image)
    strides, dilations = node.attrs.get('strides', ones), node.attrs.get('dilations', ones)
    more = node.attrs.get('output_padding', [0] * len(image))
    totals = [(k - 1) * d + 1 + m - s for k, d, s, m in zip(kernel, dilations, strides, more)]
    if min(totals) >= 0:
        return None
    halves = [(t // 2, t - t // 2) for t in totals]
    halves = halves if auto == 'SAME_UPPER' else [half[::-1] for half in halves]
    return [(before, after - m) for (before, after), m in zip(halves, more)]
