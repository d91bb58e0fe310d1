#!/usr/bin/env python3
"""Writes the cases of models/golden/numbers with names in `field_*` and `near_*`: small ONNX models, their inputs, and the right values.

    python3 models/golden/make_numbers.py        # needs numpy, onnx and ml_dtypes

`field_NN_*` are public bug reports against other engines; the numbers are those of the groups in which they were collected. `near_*` are
neighbours of the other cases, which came from a review as they are. Expected values are stated here, from a closed form or from NumPy in the
element type of the model. Nothing that is tested computes them.
"""
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "numbers"
F32, F16 = np.float32, np.float16

# Nodes from `x` to the standard deviation `s` of its rows; `c` is the centred `x`.
DEVIATION = [
    ("ReduceMean", ["x", "axes"], ["m"], {"keepdims": 1}),
    ("Sub", ["x", "m"], ["c"], {}),
    ("Mul", ["c", "c"], ["cc"], {}),
    ("ReduceMean", ["cc", "axes"], ["v"], {"keepdims": 1}),
    ("Add", ["v", "eps"], ["ve"], {}),
    ("Sqrt", ["ve"], ["s"], {}),
]


def f32(*values):
    return np.array(values, F32)


def case(name, nodes, inputs, expected, constants=(), opset=21, rtol=0.0, atol=0.0, args=(), subnormals=False):
    """Writes a case: nodes as (op, inputs, outputs, attributes), arrays by name."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    made = [helper.make_node(op, list(reads), list(writes), **attributes) for op, reads, writes, attributes in nodes]
    info = lambda key, array: helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    graph = helper.make_graph(
        made,
        name,
        [info(key, array) for key, array in inputs.items()],
        [info(key, array) for key, array in expected.items()],
        [numpy_helper.from_array(array, key) for key, array in dict(constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    for key, array in inputs.items():
        np.save(folder / f"in_{key}.npy", array)
    for key, array in expected.items():
        np.save(folder / f"expected_{key}.npy", array)
    about = {"inputs": list(inputs), "outputs": list(expected), "expect": "values", "rtol": rtol, "atol": atol, "args": list(args), "subnormals": subnormals}
    (folder / "case.json").write_text(json.dumps(about) + "\n")


def field():
    # 2: a resize between a quantiser and the next is computed on numbers, not on codes (ORT#28448).
    case(
        "field_02_quantised_resize",
        [
            ("QuantizeLinear", ["x", "one", "zero"], ["q"], {}),
            ("DequantizeLinear", ["q", "one", "zero"], ["d"], {}),
            ("Resize", ["d", "", "", "sizes"], ["r"], {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}),
            ("QuantizeLinear", ["r", "one", "zero"], ["s"], {}),
            ("DequantizeLinear", ["s", "one", "zero"], ["y"], {}),
        ],
        {"x": f32(2, 7, 4).reshape(1, 1, 1, 3)},
        {"y": f32(2, 3, 6, 6, 5, 4).reshape(1, 1, 1, 6)},
        {"one": F32(1.0), "zero": np.int8(0), "sizes": np.array([1, 1, 1, 6])},
    )
    # 3: 256 − 128 saturates (ORT#29727).
    case(
        "field_03_saturation",
        [
            ("DequantizeLinear", ["x", "tenth", "zero"], ["d"], {}),
            ("Softmax", ["d"], ["p"], {"axis": -1}),
            ("QuantizeLinear", ["p", "step", "low"], ["y"], {}),
        ],
        {"x": np.array([[127, -128, -128, -128]], np.int8)},
        {"y": np.array([[127, -128, -128, -128]], np.int8)},
        {"tenth": F32(0.1), "zero": np.int8(0), "step": F32(1 / 256), "low": np.int8(-128)},
    )
    # 4: a scale that broadcasts beyond the rows that are normalised (ORT#31980).
    case(
        "field_04_growing_broadcast",
        [
            *DEVIATION,
            ("Div", ["c", "s"], ["n"], {}),
            ("Mul", ["scale", "n"], ["y"], {}),
        ],
        {"x": f32(1, 2, 3).reshape(3, 1)},
        {"y": np.zeros((3, 2), F32)},
        {"axes": np.array([-1]), "eps": F32(1e-5), "scale": f32(2, 5)},
    )
    # 6: the plain sum of the row overflows; the norm of equal numbers is its shift, or NaN in each form alike.
    row = np.full((1, 8), 2.0**126, F32)
    shift = np.linspace(-0.26, 0.2, 8, dtype=F32)
    for name, scale in [("field_06_norm_of_large", 1.0), ("near_norm_of_ones", 2.0**-126)]:
        x = row * F32(scale)
        mean = x.sum(dtype=F32, axis=-1, keepdims=True) / F32(8)
        right = np.full((1, 8), np.nan, F32) if np.isinf(mean).any() else shift.reshape(1, 8)
        case(
            name,
            [("LayerNormalization", ["x", "g", "b"], ["y"], {"axis": -1})],
            {"x": x},
            {"y": right},
            {"g": np.ones(8, F32), "b": shift},
            rtol=1e-6,
        )
    # 7: eps and the numbers are 0 in f16, and 0·∞ is not a number (pytorch#183605).
    case(
        "field_07_f16_intermediates",
        [
            *DEVIATION,
            ("Reciprocal", ["s"], ["r"], {}),
            ("Mul", ["x", "r"], ["y"], {}),
        ],
        {"x": np.full((3, 5), 1e-10, F16)},
        {"y": np.full((3, 5), np.nan, F16)},
        {"axes": np.array([-1]), "eps": F16(1e-9)},
        args=["--fp", "exact"],
    )
    # 7, its sister: a pair of casts rounds (ORT#8787).
    case(
        "field_07_cast_pair",
        [("Cast", ["x"], ["h"], {"to": TensorProto.FLOAT16}), ("Cast", ["h"], ["y"], {"to": TensorProto.FLOAT})],
        {"x": f32(1e-12, 123456.7, 0.1)},
        {"y": f32(1e-12, 123456.7, 0.1).astype(F16).astype(F32)},
    )
    # 10a: a batch axis that is broadcast (candle#3744).
    case(
        "field_10_broadcast_batch",
        [("Expand", ["x", "shape"], ["e"], {}), ("MatMul", ["e", "w"], ["y"], {})],
        {"x": np.ones((1, 8, 8), F32), "w": np.ones((8, 8, 8), F32)},
        {"y": np.full((8, 8, 8), 8.0, F32)},
        {"shape": np.array([8, 8, 8])},
    )
    # 10b: channels, height and width are equal, which fools a test by strides (candle#3405).
    x = np.arange(64, dtype=F32).reshape(1, 4, 4, 4)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.array([[padded[0, :, i : i + 3, j : j + 3].sum() for j in range(4)] for i in range(4)], F32)
    assert sums[0, 0] == 424
    case(
        "field_10_equal_extents",
        [("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1]})],
        {"x": x},
        {"y": np.stack([sums, sums])[None]},
        {"w": np.ones((2, 4, 3, 3), F32)},
    )
    # 11: rows of a batch are what each row alone gives (burn#5122).
    def spread(*shape):
        return (((np.arange(np.prod(shape)) * 0.6180339887) % 1 - 0.5) * 0.5).reshape(shape).astype(F32)

    x, layers = spread(5, 36), [spread(36, 64), spread(64, 9), spread(9, 1)]
    y = x.astype(np.float64)
    for at, w in enumerate(layers):
        y = y @ w.astype(np.float64)
        y = np.tanh(y) if at < 2 else y
    case(
        "field_11_narrow_head",
        [
            ("MatMul", ["x", "w0"], ["a"], {}),
            ("Tanh", ["a"], ["b"], {}),
            ("MatMul", ["b", "w1"], ["c"], {}),
            ("Tanh", ["c"], ["d"], {}),
            ("MatMul", ["d", "w2"], ["y"], {}),
        ],
        {"x": x},
        {"y": y.astype(F32)},
        {f"w{at}": w for at, w in enumerate(layers)},
        rtol=1e-5,
        atol=1e-6,
    )
    # 14a: a condition of one element selects, and the shape is that of all three (tract 0.23.4).
    case(
        "field_14_constant_condition",
        [("Where", ["c", "x", "y"], ["z"], {})],
        {"x": f32(1, 2, 3).reshape(1, 3), "y": np.zeros((2, 3), F32)},
        {"z": f32(1, 2, 3, 1, 2, 3).reshape(2, 3)},
        {"c": np.bool_(True)},
    )
    # 14d: a norm by the root mean square does not subtract the mean.
    case(
        "field_14_root_mean_square",
        [
            ("Mul", ["x", "x"], ["xx"], {}),
            ("ReduceMean", ["xx", "axes"], ["m"], {"keepdims": 1}),
            ("Sqrt", ["m"], ["r"], {}),
            ("Div", ["x", "r"], ["y"], {}),
        ],
        {"x": f32(3, 4).reshape(1, 2)},
        {"y": (f32(3, 4) / np.sqrt(F32(12.5))).reshape(1, 2)},
        {"axes": np.array([-1])},
        rtol=3e-7,
    )
    # 15: sums in a reduced precision must be asked for (ORT#29849).
    a = np.full((1, 64), 0.01, F32)
    a[0, 17] = 100
    case(
        "field_15_outlier",
        [("MatMul", ["a", "w"], ["y"], {})],
        {"a": a},
        {"y": f32(100.63).reshape(1, 1)},
        {"w": np.ones((64, 1), F32)},
        rtol=1e-6,
    )


def near():
    whole = np.arange(1, 513, dtype=F32)
    # Quotients of equal numbers, by an operand, a column, a number; in each type, under each discontinuous op.
    for dtype, name in [(F32, "f32"), (np.float64, "f64"), (F16, "f16")]:
        x = np.arange(1, 257).astype(dtype)
        for op, to in [("Floor", dtype), ("Ceil", dtype), ("Round", dtype), ("Cast", np.int32)]:
            attributes = {"to": TensorProto.INT32} if op == "Cast" else {}
            case(
                f"near_whole_{op.lower()}_{name}",
                [
                    ("Div", ["x", "x"], ["a"], {}),
                    (op, ["a"], ["y"], attributes),
                    ("Div", ["x", "seven"], ["b"], {}),
                    (op, ["b"], ["z"], attributes),
                    ("Mul", ["b", "seven"], ["c"], {}),
                    (op, ["c"], ["w"], attributes),
                ],
                {"x": x},
                {
                    "y": np.ones(256, to),
                    "z": {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Cast": np.trunc}[op](x / dtype(7)).astype(to),
                    "w": {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Cast": np.trunc}[op](
                        ((x / dtype(7)).astype(dtype) * dtype(7)).astype(dtype)
                    ).astype(to),
                },
                {"seven": dtype(7)},
            )
    # A quotient that only an output reads is rounded once.
    case(
        "near_quotient_is_rounded_once",
        [("Div", ["x", "c"], ["y"], {}), ("Div", ["x", "r"], ["z"], {}), ("Reciprocal", ["x"], ["w"], {})],
        {"x": whole},
        {"y": whole / F32(49), "z": whole / F32(0.3), "w": F32(1) / whole},
        {"c": F32(49), "r": F32(0.3)},
    )
    # One value that both a comparison and an output read; equal values that are written twice.
    y = whole * F32(0.1) * F32(0.3)
    case(
        "near_observed_and_given",
        [
            ("Mul", ["x", "a"], ["p"], {}),
            ("Mul", ["p", "b"], ["y"], {}),
            ("Mul", ["x", "one"], ["x1"], {}),
            ("Mul", ["x1", "a"], ["q"], {}),
            ("Mul", ["q", "b"], ["z"], {}),
            ("Equal", ["y", "z"], ["same"], {}),
            ("Floor", ["z"], ["f"], {}),
        ],
        {"x": whole},
        {"y": y, "same": np.ones(512, np.bool_), "f": np.floor(y)},
        {"a": F32(0.1), "b": F32(0.3), "one": F32(1)},
    )
    # The order of sums beyond a row's end is open; the integer that a sum of integers is, is not.
    ones = np.ones((4, 49), F32)
    case(
        "near_mean_of_whole_numbers",
        [
            ("ReduceMean", ["x", "axes"], ["m"], {"keepdims": 0}),
            ("Floor", ["m"], ["y"], {}),
            ("Cast", ["m"], ["z"], {"to": TensorProto.INT64}),
        ],
        {"x": ones * f32(1, 3, 41, 7).reshape(4, 1)},
        {"y": f32(1, 3, 41, 7), "z": np.array([1, 3, 41, 7])},
        {"axes": np.array([-1])},
    )
    # Sums with large constants round on purpose.
    magic = F32(1.5 * 2**23)
    x = np.linspace(-5, 5, 41, dtype=F32)
    case(
        "near_rounding_by_magic",
        [
            ("Add", ["x", "c"], ["a"], {}),
            ("Sub", ["a", "c"], ["y"], {}),
            ("Sub", ["x", "y"], ["r"], {}),
        ],
        {"x": x},
        {"y": (x + magic) - magic, "r": x - ((x + magic) - magic)},
        {"c": magic},
    )
    # Zeros keep their signs.
    zeros = f32(0.0, -0.0, 1.0, -1.0)
    with np.errstate(divide="ignore"):
        case(
            "near_signs_of_zeros",
            [
                ("Add", ["x", "zero"], ["a"], {}),
                ("Reciprocal", ["a"], ["y"], {}),
                ("Sub", ["zero", "x"], ["b"], {}),
                ("Reciprocal", ["b"], ["z"], {}),
                ("Mul", ["x", "one"], ["c"], {}),
                ("Reciprocal", ["c"], ["w"], {}),
            ],
            {"x": zeros},
            {"y": 1 / (zeros + F32(0)), "z": 1 / (F32(0) - zeros), "w": 1 / zeros},
            {"zero": F32(0), "one": F32(1)},
        )
    # Programs that leave the range in one order only.
    case(
        "near_ends_of_the_range",
        [
            ("Mul", ["x", "a"], ["p"], {}),
            ("Mul", ["p", "b"], ["y"], {}),
            ("Pow", ["x", "minus"], ["z"], {}),
        ],
        {"x": f32(1e30, 1e20, 1.0)},
        {"y": f32(1e30, 1e20, 1.0) * F32(1e-30) * F32(1e-10), "z": (np.array([1e30, 1e20, 1.0], np.float64) ** -2).astype(F32)},
        {"a": F32(1e-30), "b": F32(1e-10), "minus": F32(-2)},
        rtol=1e-5,
        atol=2e-45,
        subnormals=True,
    )
    # 16-bit values are rounded where a wider type or a comparison sees them.
    h = (np.arange(1, 65) * 1.37).astype(F16)
    for op, f in [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]:
        right = f(h, F16(1.001))
        case(
            f"near_f16_{op.lower()}",
            [
                (op, ["x", "k"], ["q"], {}),
                ("Cast", ["q"], ["y"], {"to": TensorProto.FLOAT}),
                ("Greater", ["q", "x"], ["g"], {}),
            ],
            {"x": h},
            {"y": right.astype(F32), "g": right > h},
            {"k": F16(1.001)},
        )
    # The sum of a mean may be larger than what its type holds.
    large = np.full((2, 300), 25536, F16)
    for name, args in [("near_f16_mean", []), ("near_f16_mean_exact", ["--fp", "exact"])]:
        case(
            name,
            [("ReduceMean", ["x", "axes"], ["y"], {"keepdims": 1})],
            {"x": large},
            {"y": large[:, :1]},
            {"axes": np.array([1], np.int64)},
            args=args,
        )
    # Each reader of a sum in 16 bits sees the same rounding of it.
    row, place, part = np.array([1001, 1, 2], F16), np.array([[0]], np.int64), np.array([1.1], F16)
    for reduction in ["add", "mul"]:
        scatter = ("ScatterND", ["x", "i", "u"], ["s"], {"reduction": reduction})
        top = ("ReduceMax", ["s"], ["m"], {"keepdims": 1})
        case(
            f"near_f16_scatter_{reduction}",
            [
                scatter,
                top,
                ("Equal", ["s", "m"], ["e"], {}),
                ("ArgMax", ["s"], ["a"], {"axis": 0, "keepdims": 1}),
                ("Hardmax", ["s"], ["h"], {"axis": 0}),
            ],
            {"x": row, "i": place, "u": part},
            {"e": np.array([True, False, False]), "a": np.array([0]), "h": np.array([1, 0, 0], F16)},
        )
    # A score of infinity under the least number: the sum of both is infinity, and the row is NaN. Attention hides the score, where it may.
    attention = [
        ("MatMul", ["q", "k"], ["s"], {}),
        ("Add", ["s", "m"], ["b"], {}),
        ("Softmax", ["b"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["y"], {}),
    ]
    least = np.finfo(F32).min
    keys = np.array([[1e20, 1e-20, 2e-20]] * 4, F32)
    values = np.arange(12, dtype=F32).reshape(3, 4)
    masks = np.array([[least, 0, 0], [0, 0, 0]], F32)
    case(
        "near_score_of_infinity_under_least_exact",
        attention,
        {"q": np.array([[1e20] * 4, [0.0] * 4], F32), "k": keys, "v": values, "m": masks},
        {"y": np.array([[np.nan] * 4, values.mean(0)], F32)},
        rtol=1e-6,
        args=["--fp", "exact"],
    )
    # An update of −0 changes nothing, and neither does none: −0 stays −0. Each update is added in turn.
    for dtype in [F32, F16, np.float64]:
        for along in ["elements", "nd"]:
            x = np.array([-0.0, -0.0, -0.0, -0.0, 0.0, -0.0, 1.0], dtype)
            ids = np.array([0, 1, 2, 2, 3, 3, 4], np.int64)
            updates = np.array([-0.0, 0.0, -0.0, -0.0, -0.0, 0.0, -0.0], dtype)
            added = x.copy()
            for place, update in zip(ids, updates):
                added[place] = added[place] + update
            op, ids = ("ScatterElements", ids) if along == "elements" else ("ScatterND", ids[:, None])
            with np.errstate(divide="ignore"):
                case(
                    f"near_zeros_scatter_{along}_f{8 * x.itemsize}_exact",
                    [(op, ["x", "i", "u"], ["s"], {"reduction": "add"}), ("Reciprocal", ["s"], ["y"], {})],
                    {"x": x, "i": ids, "u": updates},
                    {"y": dtype(1) / added},
                    args=["--fp", "exact"],
                )
    # A repetition of more axes than a kernel supports.
    for rank in [5, 6, 8]:
        x = np.arange(2 * 3**2 * 2 ** (rank - 4), dtype=F32).reshape([2, 3, 1, 3, *[2] * (rank - 4)])
        times = np.array([2, 3, 2, 1, *[2] * (rank - 4)], np.int64)
        case(f"near_tile_of_{rank}_axes", [("Tile", ["x", "t"], ["y"], {})], {"x": x}, {"y": np.tile(x, times)}, {"t": times})


if __name__ == "__main__":
    field()
    near()
    print(f"{sum(1 for p in FOLDER.iterdir() if p.name.startswith(('field_', 'near_')))} cases in {FOLDER}")
