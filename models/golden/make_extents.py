"""Makes small models whose shapes depend on open dimensions, as exporters write them.

    python models/golden/make_extents.py

`eutectic/tests/onnx_extents.rs` runs each as one program for all lengths, and compares it with programs of fixed sizes.
"""

import pathlib

import numpy as np
import onnx
from onnx import numpy_helper, parser

FOLDER = pathlib.Path(__file__).parent / "extents"
HEAD = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>'
RNG = np.random.default_rng(52)


def weights(*dims):
    return RNG.standard_normal(dims).astype(np.float32) / 2


MODELS = {
    # Shape, Gather, Concat and Reshape, as the older exporter of torch writes views; positions are a slice of a table.
    "attention": (
        """agraph (float[batch, seq, 16] x, int64[batch, seq] mask) => (float[batch, seq, 16] y) {
            shape = Shape(x)
            zero = Constant<value_int: int = 0>()
            one = Constant<value_int: int = 1>()
            axis = Constant<value_ints: ints = [0]>()
            b = Gather<axis: int = 0>(shape, zero)
            s = Gather<axis: int = 0>(shape, one)
            b1 = Unsqueeze(b, axis)
            s1 = Unsqueeze(s, axis)
            axis1 = Constant<value_ints: ints = [1]>()
            places = Slice(table, axis, s1, axis)
            placed = Add(x, places)
            apart = Constant<value_ints: ints = [2, 8]>()
            wanted = Concat<axis: int = 0>(b1, s1, apart)
            q0 = MatMul(placed, wq)
            k0 = MatMul(placed, wk)
            q1 = Reshape(q0, wanted)
            k1 = Reshape(k0, wanted)
            q = Transpose<perm: ints = [0, 2, 1, 3]>(q1)
            k = Transpose<perm: ints = [0, 2, 3, 1]>(k1)
            v = Transpose<perm: ints = [0, 2, 1, 3]>(k1)
            scores = MatMul(q, k)
            axes = Constant<value_ints: ints = [1, 2]>()
            mask4 = Unsqueeze(mask, axes)
            ones = Constant<value_ints: ints = [1]>()
            target = Concat<axis: int = 0>(b1, ones, s1, s1)
            minus = Constant<value_ints: ints = [-1, -1, -1, -1]>()
            open = Equal(target, minus)
            filled = Where(open, minus, target)
            mask5 = Expand(mask4, filled)
            kept = Cast<to: int = 9>(mask5)
            low = Constant<value_float: float = -10000.0>()
            none = Constant<value_float: float = 0.0>()
            bias = Where(kept, none, low)
            biased = Add(scores, bias)
            p = Softmax<axis: int = -1>(biased)
            o = MatMul(p, v)
            o1 = Transpose<perm: ints = [0, 2, 1, 3]>(o)
            width = Constant<value_ints: ints = [16]>()
            flat = Concat<axis: int = 0>(b1, s1, width)
            y = Reshape(o1, flat)
        }""",
        {"table": weights(16, 16), "wq": weights(16, 16), "wk": weights(16, 16)},
    ),
    # Pooling of tokens: mean, maximum, first, last, and the mean of visible tokens.
    "pooling": (
        """agraph (float[batch, seq, 4] x, int64[batch, seq] mask)
            => (float[batch, 4] mean, float[batch, 4] largest, float[batch, 4] first, float[batch, 4] last, float[batch, 4] kept) {
            axis = Constant<value_ints: ints = [1]>()
            mean = ReduceMean<keepdims: int = 0>(x, axis)
            largest = ReduceMax<keepdims: int = 0>(x, axis)
            zero = Constant<value_int: int = 0>()
            end = Constant<value_int: int = -1>()
            first = Gather<axis: int = 1>(x, zero)
            last = Gather<axis: int = 1>(x, end)
            axes = Constant<value_ints: ints = [2]>()
            number = Cast<to: int = 1>(mask)
            column = Unsqueeze(number, axes)
            weighted = Mul(x, column)
            sum = ReduceSum<keepdims: int = 0>(weighted, axis)
            count = ReduceSum<keepdims: int = 0>(column, axis)
            kept = Div(sum, count)
        }""",
        {},
    ),
    # A causal mask by Range, and by Trilu of a constant of that shape.
    "masks": (
        """agraph (float[seq, seq] x) => (float[seq, seq] y, float[seq, seq] z, int64[seq] places) {
            shape = Shape(x)
            zero = Constant<value_int: int = 0>()
            one = Constant<value_int: int = 1>()
            s = Gather<axis: int = 0>(shape, zero)
            places = Range(zero, s, one)
            axis0 = Constant<value_ints: ints = [0]>()
            axis1 = Constant<value_ints: ints = [1]>()
            row = Unsqueeze(places, axis1)
            column = Unsqueeze(places, axis0)
            hidden = Less(row, column)
            low = Constant<value_float: float = -1.0>()
            y = Where(hidden, low, x)
            all = ConstantOfShape<value: tensor = float[1] {-2.0}>(shape)
            upper = Trilu<upper: int = 1>(all, one)
            z = Add(x, upper)
        }""",
        {},
    ),
    # Parts, paddings, repetitions and halves of the length.
    "parts": (
        """agraph (float[batch, seq, 6] x) => (float[batch, n, 6] tail, float[batch, m, 6] both, float[c, seq, 6] twice, float[d, 3] rows, float[batch, seq, 2] a, float[batch, seq, 4] b) {
            axis = Constant<value_ints: ints = [1]>()
            far = Constant<value_ints: ints = [9223372036854775807]>()
            tail = Slice(x, axis, far, axis)
            pads = Constant<value_ints: ints = [0, 1, 0, 0, 2, 0]>()
            padded = Pad(x, pads)
            both = Concat<axis: int = 1>(padded, tail)
            times = Constant<value_ints: ints = [2, 1, 1]>()
            twice = Tile(x, times)
            wide = Constant<value_ints: ints = [-1, 3]>()
            sums = ReduceSum<keepdims: int = 0>(x, axis)
            rows = Reshape(sums, wide)
            sizes = Constant<value_ints: ints = [2, 4]>()
            a, b = Split<axis: int = 2>(x, sizes)
        }""",
        {},
    ),
    # A signal: convolutions in steps of 1 along time, a norm of each row, the index of the maximum.
    "signal": (
        """agraph (float[batch, 3, time] x) => (float[batch, 5, time] y, int64[batch, time] place) {
            c = Conv<pads: ints = [1, 1], kernel_shape: ints = [3]>(x, w, b)
            a = Relu(c)
            d = Conv<auto_pad: string = "SAME_UPPER", kernel_shape: ints = [4], group: int = 5>(a, depthwise)
            t = Transpose<perm: ints = [0, 2, 1]>(d)
            n = LayerNormalization(t, gain)
            place = ArgMax<axis: int = 2, keepdims: int = 0>(n)
            y = Transpose<perm: ints = [0, 2, 1]>(n)
        }""",
        {"w": weights(5, 3, 3), "b": weights(5), "depthwise": weights(5, 1, 4), "gain": weights(5)},
    ),
    # Images of a batch: strided windows, pools, and resizing.
    "images": (
        """agraph (float[batch, 3, 9, 8] x) => (float[batch, 4] y, float[batch, 4, 10, 8] z) {
            c = Conv<pads: ints = [1, 1, 1, 1], strides: ints = [2, 2], kernel_shape: ints = [3, 3]>(x, w)
            p = MaxPool<kernel_shape: ints = [2, 2], pads: ints = [1, 1, 0, 0]>(c)
            y0 = GlobalAveragePool(p)
            y = Flatten<axis: int = 1>(y0)
            z = Resize<mode: string = "nearest">(c, , scales)
        }""",
        {"w": weights(4, 3, 3, 3), "scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    # A product of 8-bit integers whose scale is computed.
    "integers": (
        """agraph (float[batch, seq, 8] x) => (float[batch, seq, 4] y) {
            q, scale, zero = DynamicQuantizeLinear(x)
            sum = MatMulInteger(q, w, zero)
            number = Cast<to: int = 1>(sum)
            y = Mul(number, scale)
        }""",
        {"w": RNG.integers(-127, 127, (8, 4)).astype(np.int8)},
    ),
    # A step of a decoder: keys of the past, then those of the step.
    "decoder": (
        """agraph (float[batch, 2, seq, 8] q, float[batch, 2, past, 8] before) => (float[batch, 2, seq, 8] y, float[batch, 2, total, 8] all) {
            all = Concat<axis: int = 2>(before, q)
            k = Transpose<perm: ints = [0, 1, 3, 2]>(all)
            scores = MatMul(q, k)
            p = Softmax<axis: int = -1>(scores)
            y = MatMul(p, all)
        }""",
        {},
    ),
}

FOLDER.mkdir(exist_ok=True)
for name, (text, params) in MODELS.items():
    model = parser.parse_model(f"{HEAD} {text}")
    model.graph.initializer.extend(numpy_helper.from_array(value, key) for key, value in params.items())
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / f"{name}.onnx")
