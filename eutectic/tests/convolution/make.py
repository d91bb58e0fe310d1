#!/usr/bin/env python3
"""Makes the *.graph files here: convolutions, poolings and norms of images, with what PyTorch computes for them in float64.

Run by hand, in the environment of benches/peers/setup.sh:
    ~/.cache/eutectic-peers/venv/bin/python eutectic/tests/convolution/make.py
"""
import pathlib

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
torch.manual_seed(4)


def tensor(*dims, low=-8):
    """Eighths, which every element type holds exactly."""
    return torch.randint(low, 9, dims).double() / 8


def text(name, value):
    numbers = " ".join(f"{x:.9g}" for x in value.flatten().tolist())
    dims = " ".join(map(str, value.shape))
    return f"  (const {name} f32[{dims}] {{ {numbers} }})\n"


def case(name, what, op, operands, attributes, want):
    names = ["x", "w", "b", "m", "v"][: len(operands)]
    lines = "".join(text(n, value) for n, value in zip(names, operands)) + text("want", want)
    call = f"({op} {' '.join(names)} {attributes})"
    body = f'; {what}\n(graph "{name}"\n{lines}  (output got {call})\n  (output want want))\n'
    (HERE / f"{name}.graph").write_text(body)


def conv(name, what, x, w, b=None, stride=(1, 1), dilation=(1, 1), before=(0, 0), after=(0, 0), groups=1):
    padded = F.pad(x, (before[1], after[1], before[0], after[0]))
    want = F.conv2d(padded, w, b, stride=stride, dilation=dilation, groups=groups)
    pair = lambda p: f"[{p[0]} {p[1]}]"
    attributes = f":stride {pair(stride)} :dilation {pair(dilation)} :before {pair(before)} :after {pair(after)} :groups {groups}"
    case(name, what, "conv", [x, w] + ([] if b is None else [b]), attributes, want)


conv("conv-plain", "A convolution without anything.", tensor(1, 2, 5, 6), tensor(3, 2, 3, 2))
conv("conv-one", "One by one: a product.", tensor(2, 3, 4, 5), tensor(4, 3, 1, 1), tensor(4))
conv("conv-one-strided", "One by one, every second row and third column.", tensor(1, 3, 5, 7), tensor(2, 3, 1, 1), stride=(2, 3))
conv("conv-padded", "A border of zeros, as in most networks.", tensor(2, 3, 5, 4), tensor(4, 3, 3, 3), tensor(4), before=(1, 1), after=(1, 1))
conv("conv-asymmetric", "Another border on each side.", tensor(1, 2, 4, 5), tensor(3, 2, 3, 3), before=(0, 2), after=(3, 1))
conv("conv-strided", "Large windows that overlap, as the first layer of a residual network.", tensor(1, 3, 9, 11), tensor(4, 3, 7, 7), stride=(2, 2), before=(3, 3), after=(3, 3))
conv("conv-dilated", "Windows with gaps.", tensor(1, 2, 8, 7), tensor(2, 2, 3, 2), dilation=(2, 3), before=(2, 1), after=(1, 0))
conv("conv-groups", "Three groups of channels, two results each.", tensor(2, 6, 4, 4), tensor(6, 2, 3, 3), tensor(6), before=(1, 1), after=(1, 1), groups=3)
conv("conv-depthwise", "Each channel by itself.", tensor(1, 5, 5, 4), tensor(5, 1, 3, 3), tensor(5), stride=(2, 1), before=(1, 1), after=(1, 1), groups=5)
conv("conv-multiplier", "Each channel by itself, two results each.", tensor(1, 3, 4, 4), tensor(6, 1, 2, 2), groups=3)
conv("conv-line", "An image of one row.", tensor(2, 3, 1, 9), tensor(4, 3, 1, 3), tensor(4), stride=(1, 2), before=(0, 1), after=(0, 1))
conv("conv-whole", "A window as large as the image.", tensor(2, 2, 3, 4), tensor(5, 2, 3, 4))


def transposed(name, what, x, w, stride=(1, 1), dilation=(1, 1), padding=(0, 0), more=(0, 0), groups=1):
    want = F.conv_transpose2d(x, w, None, stride=stride, dilation=dilation, padding=padding, output_padding=more, groups=groups)
    pair = lambda p: f"[{p[0]} {p[1]}]"
    after = (padding[0] - more[0], padding[1] - more[1])
    attributes = f":stride {pair(stride)} :dilation {pair(dilation)} :before {pair(padding)} :after {pair(after)} :groups {groups}"
    case(name, what, "conv-transpose", [x, w], attributes, want)


transposed("conv-transpose-plain", "The transpose of a convolution.", tensor(1, 2, 3, 4), tensor(2, 3, 3, 2))
transposed("conv-transpose-apart", "Each element becomes a small image.", tensor(2, 3, 3, 2), tensor(3, 2, 2, 3), stride=(2, 3))
transposed("conv-transpose-strided", "Images that overlap, cut at the border.", tensor(1, 2, 4, 3), tensor(2, 3, 3, 3), stride=(2, 2), padding=(1, 1), more=(1, 0))
transposed("conv-transpose-groups", "Two groups, with gaps.", tensor(1, 4, 3, 3), tensor(4, 1, 3, 2), stride=(2, 1), dilation=(2, 1), padding=(1, 0), groups=2)


def pool(name, what, op, x, size, stride, padding, dilation=(1, 1), more=""):
    pair = lambda p: f"[{p[0]} {p[1]}]"
    if op == "max-pool":
        want = F.max_pool2d(x, size, stride, padding, dilation)
    else:
        want = F.avg_pool2d(x, size, stride, padding, count_include_pad="window" in more)
    attributes = f":size {pair(size)} :stride {pair(stride)} :dilation {pair(dilation)} :before {pair(padding)} :after {pair(padding)}{more}"
    case(name, what, op, [x], attributes, want)


pool("max-pool", "The largest, where nothing around the image counts.", "max-pool", tensor(1, 3, 7, 6) - 2, (3, 3), (2, 2), (1, 1))
pool("max-pool-dilated", "With gaps.", "max-pool", tensor(2, 2, 7, 8), (2, 3), (1, 2), (1, 0), (3, 2))
pool("average-pool-window", "The mean, with zeros around the image.", "average-pool", tensor(1, 2, 5, 6), (3, 2), (2, 1), (1, 1), more=" :over window")
pool("average-pool-inside", "The mean of what is there.", "average-pool", tensor(2, 2, 5, 6), (3, 3), (2, 2), (1, 1), more=" :over inside")

x, g, b, m, v = tensor(2, 3, 4, 5), tensor(3), tensor(3), tensor(3), tensor(3, low=1)
case("batch-norm", "Given statistics of each channel.", "batch-norm", [x, g, b, m, v], ":axis 1 :eps 0.01", F.batch_norm(x, m, v, g, b, eps=0.01))
x, g, b = tensor(2, 6, 3, 2), tensor(6), tensor(6)
case("group-norm", "Statistics of two channels at a time.", "group-norm", [x, g, b], ":groups 3 :eps 0.01", F.group_norm(x, 3, g, b, eps=0.01))
