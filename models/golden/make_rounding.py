#!/usr/bin/env python3
"""Writes tiny models whose results depend on rounding, rounding/NAME.onnx, with inputs and the right results, rounding/values.safetensors.

    python models/golden/make_rounding.py models/golden/rounding

It needs numpy and onnx only. The results follow from IEEE 754 and from ONNX's text; they are written down here or computed by numpy op by op in the element
type. `in.NAME` is an input, `out.NAME` a result. The numbers in comments are those of bug reports of other engines.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import parser

CASES = {}
STORED = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8", "uint32": "U32", "bool": "BOOL"}


def case(name, text, inputs, outputs, opset=21):
    """A model in ONNX's text form, without its header."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\n{text}')
    onnx.checker.check_model(model)
    CASES[name] = (model, inputs, outputs)


def f32(*values):
    return np.array(values, np.float32)


def save(path, tensors):
    """The format of https://github.com/huggingface/safetensors: the length of a header, the header, the bytes."""
    header, data = {}, b""
    for name, value in tensors.items():
        value = np.asarray(value)
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": STORED[str(value.dtype)], "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def quantised_constants():
    """onnxruntime#28491: negative codes were read as unsigned ones."""
    code = np.array([12, -45, 7, -3], np.int8)
    case("dequantize", """g (int8[4] q) => (float[2, 2] y) <float s = {0.02}, int64[2] to = {2, 2}> {
        d = DequantizeLinear(q, s)  y = Reshape(d, to) }""",
         {"q": code}, {"y": (code.astype(np.float32) * np.float32(0.02)).reshape(2, 2)})
    case("dequantize_one", "g (int8[1] q) => (float[1] y) <float s = {0.01}> { y = DequantizeLinear(q, s) }",
         {"q": np.array([-30], np.int8)}, {"y": f32(-30) * np.float32(0.01)})


def infinities():
    """onnxruntime#31163: 1/0 is infinite, and times 0 no number."""
    case("reciprocal_of_zero", """g (float[13, 16, 16] x, float[1, 1, 1, 1] z) => (float[1, 1, 13, 16] y) {
        r = Sqrt(x)  i = Reciprocal(r)  m = ReduceMin<axes = [-1], keepdims = 0>(i)  y = Mul(m, z) }""",
         {"x": np.zeros((13, 16, 16), np.float32), "z": np.zeros((1, 1, 1, 1), np.float32)}, {"y": np.full((1, 1, 13, 16), np.nan, np.float32)}, opset=13)


def casts():
    """apple/coreai-torch#9, onnx-mlir#2210, onnxruntime#11994: conversions that lose something never cancel."""
    case("truncate", """g (float[4] x) => (float[4] y) <float c = {64}> {
        a = Add(x, c)  n = Cast<to = 7>(a)  f = Cast<to = 1>(n)  y = Sub(f, c) }""",
         {"x": f32(0.3, 1.7, -0.4, -1.6)}, {"y": f32(0, 1, -1, -2)})
    case("truth_of_integer", "g (int32[3] x) => (int8[3] y) { b = Cast<to = 9>(x)  y = Cast<to = 3>(b) }",
         {"x": np.array([-2, 0, 256], np.int32)}, {"y": np.array([1, 0, 1], np.int8)})
    case("truth_of_truncated", "g (float[5] x) => (bool[5] y) { n = Cast<to = 6>(x)  y = Cast<to = 9>(n) }",
         {"x": f32(-0.2, -0.1, 0, 0.1, 0.2)}, {"y": np.zeros(5, np.bool_)})
    wide = np.array([0.1, 1 / 3, 1e300, 1e-300, 16777217], np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32).astype(np.float64)
    case("narrow_and_wide", "g (double[5] x) => (double[5] y) { n = Cast<to = 1>(x)  y = Cast<to = 11>(n) }", {"x": wide}, {"y": narrow})
    case("sign_extension", "g (int32[2] x) => (int64[2] y) { u = Cast<to = 12>(x)  y = Cast<to = 7>(u) }",
         {"x": np.array([-1, 7], np.int32)}, {"y": np.array([4294967295, 7], np.int64)})
    # Between two floats, by a bit that an f64 does not hold.
    between = np.array([(1 << 60) + (1 << 36) + 1, -((1 << 60) + (1 << 36) + 1), (1 << 53) + 1, 1 << 62], np.int64)
    case("wide_integers_as_floats", "g (int64[4] x) => (float[4] y, double[4] z) { y = Cast<to = 1>(x)  z = Cast<to = 11>(x) }",
         {"x": between}, {"y": between.astype(np.float32), "z": between.astype(np.float64)})


def integers():
    """pytorch#175966, #187018, #198081, #190764, #194381: the width of integers is that of their type."""
    case("wide_range", """g (int64[11] x) => (int64[11] y) <int64 f = {1000000000}> { y = Mul(x, f) }""",
         {"x": np.arange(11, dtype=np.int64)}, {"y": np.arange(11, dtype=np.int64) * 10**9})
    case("wraps_before_the_sum", """g (uint8[2] x) => (int64 y) <uint8 z = {0}> {
        a = Abs(x)  n = Sub(z, a)  c = Concat<axis = 0>(n, n)  w = Cast<to = 7>(c)  y = ReduceSum<keepdims = 0>(w) }""",
         {"x": np.array([200, 200], np.uint8)}, {"y": np.array(224, np.int64)})
    case("any_in_u8", """g (uint8[3] x) => (uint8 y) <uint8 z = {0}, uint8 f = {200}, uint8 b = {100}> {
        e = Equal(x, z)  n = Not(e)  u = Cast<to = 2>(n)  a = ReduceMax<keepdims = 0>(u)  s = Mul(a, f)  y = Add(s, b) }""",
         {"x": np.array([0, 3, 0], np.uint8)}, {"y": np.array(44, np.uint8)}, opset=18)
    x, y, z = (np.array(v, np.int32).reshape(2, 2) for v in ([2147483647, -2147483648, 3, -7], [2147483000, -5, 12345, -2147483000], [2147483647, 9, -2147483648, 77]))
    with np.errstate(over="ignore"):
        product = x * (y + z)
        total = product.sum(1, dtype=np.int32)
    case("distributes_bit_for_bit", """g (int32[2, 2] x, int32[2, 2] y, int32[2, 2] z) => (int32[2, 2] a, int32[2, 2] b, int32[2] c, int32[2] d) <int64[1] axis = {1}> {
        s = Add(y, z)  a = Mul(x, s)  p = Mul(x, y)  q = Mul(x, z)  b = Add(p, q)
        c = ReduceSum<keepdims = 0>(a, axis)  e = ReduceSum<keepdims = 0>(p, axis)  f = ReduceSum<keepdims = 0>(q, axis)  d = Add(e, f) }""",
         {"x": x, "y": y, "z": z}, {"a": product, "b": product, "c": total, "d": total})
    mask, data = np.array([[0, 1, 1], [1, 0, 0]], np.int64), np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(0.5)
    case("mask_as_float", """g (int64[2, 3] m, float[2, 3] x) => (float[2, 3] y) <float one = {1}> {
        f = Cast<to = 1>(m)  k = Sub(one, f)  y = Mul(k, x) }""", {"m": mask, "x": data}, {"y": (1 - mask).astype(np.float32) * data})
    big = 1 << 60
    case("wide_range_from", "g (int64 a, int64 b, int64 c) => (int64[n] y) { y = Range(a, b, c) }",
         {"a": np.array(big + 1), "b": np.array(big + 8), "c": np.array(3)}, {"y": np.array([big + 1, big + 4, big + 7])})
    case("wide_range_down", "g (int64 a, int64 b, int64 c) => (int64[n] y) { y = Range(a, b, c) }",
         {"a": np.array(2**63 - 1), "b": np.array(-(2**63)), "c": np.array(-(2**62))},
         {"y": np.array([2**63 - 1, 2**62 - 1, -1, -(2**62) - 1])})
    case("wide_padding", f"g (int64[2] x) => (int64[5] y) <int64[2] p = {{1, 2}}, int64 v = {{{big + 1}}}> {{ y = Pad(x, p, v) }}",
         {"x": np.array([5, -big - 1])}, {"y": np.array([big + 1, 5, -big - 1, big + 1, big + 1])})
    narrow = np.array([-128, 127, -1, 5, 0, -7, 7], np.int8)
    a, b = (m.ravel() for m in np.meshgrid(narrow, narrow[narrow != 0]))
    case("fmod_i8", "g (int8[n] a, int8[n] b) => (int8[n] y) { y = Mod<fmod = 1>(a, b) }", {"a": a, "b": b}, {"y": np.fmod(a.astype(int), b).astype(np.int8)})
    case("mod_i8", "g (int8[n] a, int8[n] b) => (int8[n] y) { y = Mod(a, b) }", {"a": a, "b": b}, {"y": np.mod(a.astype(int), b).astype(np.int8)})
    wide = np.array([-(2**63), 2**63 - 1, -1, 5, 2**53 + 1, -(2**53) - 1], np.int64)
    a, b = (m.ravel() for m in np.meshgrid(wide, wide))
    least = np.array([int(abs(p)) % int(abs(q)) * (1 if p >= 0 else -1) for p, q in zip(a.tolist(), b.tolist())], np.int64)
    case("fmod_i64", "g (int64[n] a, int64[n] b) => (int64[n] y) { y = Mod<fmod = 1>(a, b) }", {"a": a, "b": b}, {"y": least})
    u = np.array([200, 7, 255, 0], np.uint8)
    a, b = (m.ravel() for m in np.meshgrid(u, u[u > 0]))
    case("fmod_u8", "g (uint8[n] a, uint8[n] b) => (uint8[n] y) { y = Mod<fmod = 1>(a, b) }", {"a": a, "b": b}, {"y": np.mod(a, b)})


def empty():
    """onnxruntime#26041: tensors without elements."""
    none = lambda *dims: np.zeros(dims, np.float32)
    case("empty_sum_keeps", "g (float[0, 0] x) => (float[1, 0] y) <int64[1] a = {0}> { y = ReduceSum<keepdims = 1>(x, a) }", {"x": none(0, 0)}, {"y": none(1, 0)})
    case("empty_sum", "g (float[0, 3] x) => (float[3] y) <int64[1] a = {0}> { y = ReduceSum<keepdims = 0>(x, a) }", {"x": none(0, 3)}, {"y": none(3)})
    case("empty_max", "g (float[0, 4] x) => (float[4] y) <int64[1] a = {0}> { y = ReduceMax<keepdims = 0>(x, a) }", {"x": none(0, 4)}, {"y": np.full(4, -np.inf, np.float32)})
    case("empty_concat", "g (float[2] x, float[0] z) => (float[2] y) { y = Concat<axis = 0>(x, z) }", {"x": f32(1, 2), "z": none(0)}, {"y": f32(1, 2)})
    case("empty_rows", "g (float[0, 2] x, float[2] w) => (float[0] y) { y = MatMul(x, w) }", {"x": none(0, 2), "w": f32(1, 2)}, {"y": none(0)})
    case("empty_terms", "g (float[2, 0] x, float[0, 3] w) => (float[2, 3] y) { y = MatMul(x, w) }", {"x": none(2, 0), "w": none(0, 3)}, {"y": none(2, 3)})
    case("empty_softmax", "g (float[2, 0] x) => (float[2, 0] y) { y = Softmax<axis = -1>(x) }", {"x": none(2, 0)}, {"y": none(2, 0)})


def shapes():
    """Sizes as exporters compute them: each op is rounded to f32."""
    scaled = lambda extents, scale: np.floor(np.array(extents).astype(np.float32) * np.asarray(scale, np.float32)).astype(np.int64)
    case("size_by_scale", """g (float[1, 1, 10, 20] x) => (int64[2] y) <int64[1] two = {2}, int64[1] four = {4}, float s = {0.7}> {
        a = Shape(x)  b = Slice(a, two, four)  c = Cast<to = 1>(b)  d = Mul(c, s)  e = Floor(d)  n = Cast<to = 7>(e)  z = ConstantOfShape(n)  y = Shape(z) }""",
         {"x": np.zeros((1, 1, 10, 20), np.float32)}, {"y": scaled([10, 20], 0.7)})
    scale = np.array([0.75, np.float32(224) / np.float32(706)], np.float32)
    floats = ", ".join(repr(float(v)) for v in scale)
    case("size_by_scales", f"""g (float[1, 1, 4, 706] x) => (int64[2] y) <int64[1] two = {{2}}, int64[1] four = {{4}}, float[2] s = {{{floats}}}> {{
        a = Shape(x)  b = Slice(a, two, four)  c = Cast<to = 1>(b)  d = Mul(c, s)  e = Floor(d)  n = Cast<to = 7>(e)  z = ConstantOfShape(n)  y = Shape(z) }}""",
         {"x": np.zeros((1, 1, 4, 706), np.float32)}, {"y": scaled([4, 706], scale)})
    x = np.arange(100, dtype=np.float32).reshape(1, 1, 10, 10)
    at = [int(np.ceil((i + 0.5) / 0.7 - 0.5 - 0.5)) for i in range(7)]
    case("resize_to_computed_size", """g (float[1, 1, 10, 10] x) => (float[1, 1, 7, 7] y) <int64[1] two = {2}, int64[1] four = {4}, int64[2] one = {1, 1}, float s = {0.7}> {
        a = Shape(x)  b = Slice(a, two, four)  c = Cast<to = 1>(b)  d = Mul(c, s)  e = Floor(d)  n = Cast<to = 7>(e)  z = Concat<axis = 0>(one, n)
        y = Resize<mode = "nearest">(x, "", "", z) }""", {"x": x}, {"y": x[:, :, at][..., at]})
    case("rounded_between_ops", """g (int64[2] i, float[2] x) => (float[2] y) <float b = {1}> {
        a = Cast<to = 1>(i)  c = Add(a, b)  d = Sub(c, a)  e = ReduceMax<keepdims = 0>(d)  y = Add(x, e) }""",
         {"i": np.array([16777216, 16777218], np.int64), "x": f32(1, 2)}, {"y": f32(3, 4)}, opset=13)
    steps = lambda a, b, c: (np.arange(int(np.ceil((b - a) / c))).astype(np.float32) * np.float32(c) + np.float32(a)).astype(np.float32)
    for name, (a, b, c) in {"range_extremum": (0, 5.5, 0.3), "range_extremum_from": (1, 3.05, 0.1)}.items():
        values = steps(a, b, c)
        case(name, "g (float a, float b, float c) => (int64[1] y, float z) { r = Range(a, b, c)  y = ArgMax<axis = 0>(r)  m = ReduceMax<keepdims = 0>(r)  e = Equal(r, m)  f = Cast<to = 1>(e)  z = ReduceSum<keepdims = 0>(f) }",
             {"a": np.float32(a), "b": np.float32(b), "c": np.float32(c)}, {"y": np.array([values.argmax()]), "z": np.float32(1)})
    # The shape goes through a function that kernels approximate: it is the correctly rounded one.
    case("size_by_power", """g (float[64, 3] x) => (int64[1] y) <int64[1] zero = {0}, int64[1] one = {1}, float h = {0.5}> {
        a = Shape(x)  b = Slice(a, zero, one)  c = Cast<to = 1>(b)  d = Pow(c, h)  n = Cast<to = 7>(d)  z = ConstantOfShape(n)  y = Shape(z) }""",
         {"x": np.zeros((64, 3), np.float32)}, {"y": np.array([8], np.int64)})


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for write in (quantised_constants, infinities, casts, integers, empty, shapes):
        write()
    values = {}
    for name, (model, inputs, outputs) in CASES.items():
        onnx.save(model, folder / f"{name}.onnx")
        values |= {f"{name}.in.{k}": v for k, v in inputs.items()} | {f"{name}.out.{k}": v for k, v in outputs.items()}
    save(folder / "values.safetensors", values)
    print(len(CASES), "models")


main()
