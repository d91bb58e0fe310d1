#!/usr/bin/env python3
"""Writes models of quantised ops and attention of the domain com.microsoft, and of 4-bit tensors, with their inputs and the results of ONNX Runtime:
models/golden/microsoft/NAME, as `numbers` has its cases.

    pip install numpy onnx==1.22.0 onnxruntime==1.32.0
    python3 models/golden/make_microsoft.py                                      # writes the cases
    python3 models/golden/make_microsoft.py --check target/debug/eutectic 1 20   # runs new ones, of seeds 1 to 19, with the command
"""
import pathlib
import sys

import golden_cases
import numpy as np
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "microsoft"
F32, I32, U8, I8 = np.float32, np.int32, np.uint8, np.int8
MS = "com.microsoft"
RELATIVE, ABSOLUTE = 1e-4, 1e-5


def model_of(nodes, inputs, constants, outputs, opset=21):
    """A model of nodes; arrays by name, constants too, or tensors."""
    info = lambda name, array: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    stored = [numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else value for name, value in constants.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", [info(*item) for item in inputs.items()], results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)], ir_version=10)


def packed(rng, name, kind, dims):
    """A tensor of random elements of 4 bits."""
    count = int(np.prod(dims))
    return helper.make_tensor(name, kind, dims, rng.integers(0, 256, (count + 1) // 2).astype(U8).tobytes(), raw=True)


def products(rng):
    """MatMulNBits: bits, blocks, K with a short last block, zero points, rows."""
    for bits, block, terms, columns, zero, extra in [
        (4, 16, 32, 6, None, None),
        (4, 32, 80, 5, "packed", "bias"),
        (4, 16, 48, 3, "numbers", None),
        (8, 32, 64, 4, None, "bias"),
        (8, 16, 40, 3, "packed", None),
        # With groups of terms, ONNX Runtime takes the middle of the codes for zero points that are packed.
        (4, 16, 64, 4, None, "groups"),
        (2, 16, 64, 4, None, None),
    ]:
        blocks = -(-terms // block)
        x = rng.standard_normal((2, int(rng.integers(1, 4)), terms)).astype(F32)
        constants = {
            "w": rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(U8),
            "s": (0.05 + 0.1 * rng.random((columns, blocks))).astype(F32),
        }
        names = ["x", "w", "s", "", "", ""]
        if zero == "packed":
            constants["z"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(U8)
        elif zero == "numbers":
            constants["z"] = rng.uniform(4, 12, (columns, blocks)).astype(F32)
        names[3] = "z" if zero else ""
        if extra == "groups":
            constants["g"] = rng.permutation(np.arange(terms) // block).astype(I32)
            names[4] = "g"
        if extra == "bias":
            constants["b"] = rng.standard_normal(columns).astype(F32)
            names[5] = "b"
        node = helper.make_node("MatMulNBits", names, ["y"], domain=MS, K=terms, N=columns, bits=bits, block_size=block)
        yield f"product_{bits}_{block}_{terms}_{zero}_{extra}".lower(), [node], {"x": x}, constants, ["y"]


def tables(rng):
    """GatherBlockQuantized of bytes and of 4-bit tensors; DequantizeLinear of 4-bit tensors."""
    ids = rng.integers(-7, 7, (2, 3))
    scale = lambda *dims: (0.05 + 0.1 * rng.random(dims)).astype(F32)
    given = {"t": rng.integers(0, 256, (7, 16)).astype(U8), "s": scale(7, 2)}
    node = lambda names, **more: helper.make_node("GatherBlockQuantized", names, ["y"], domain=MS, block_size=16, quantize_axis=1, gather_axis=0, **more)
    yield "table_bytes", [node(["t", "ids", "s"], bits=4)], {"ids": ids}, given, ["y"]
    given = given | {"z": rng.integers(0, 256, (7, 1)).astype(U8)}
    yield "table_bytes_zero", [node(["t", "ids", "s", "z"], bits=4)], {"ids": ids}, given, ["y"]
    given = {"t": packed(rng, "t", TensorProto.INT4, [7, 32]), "s": scale(7, 2)}
    yield "table_int4", [node(["t", "ids", "s"])], {"ids": ids}, given, ["y"]
    given = {"t": packed(rng, "t", TensorProto.UINT4, [7, 32]), "s": scale(7, 2), "z": packed(rng, "z", TensorProto.UINT4, [7, 2])}
    yield "table_uint4_zero", [node(["t", "ids", "s", "z"])], {"ids": ids}, given, ["y"]
    for kind, name in [(TensorProto.INT4, "int4"), (TensorProto.UINT4, "uint4")]:
        x = rng.standard_normal((2, 32)).astype(F32)
        given = {"w": packed(rng, "w", kind, [32, 3]), "s": scale(2, 3), "z": packed(rng, "z", kind, [2, 3])}
        decode = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=16)
        yield f"matrix_{name}", [decode, helper.make_node("MatMul", ["x", "d"], ["y"])], {"x": x}, given, ["y"]
        given = {"s": np.array(0.2, F32), "z": packed(rng, "z", kind, [])}
        both = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
        yield f"limits_{name}", both, {"x": 3 * rng.standard_normal((5, 7)).astype(F32)}, given, ["y"]


def integers(rng):
    """Products whose rows are quantised at run time, and recurrent layers of them."""
    rows, terms, columns = 3, 24, 5
    x = rng.standard_normal((2, rows, terms)).astype(F32)
    for kind, scales in [(I8, columns), (U8, 1)]:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        constants = {"w": rng.integers(low, high + 1, (terms, columns)).astype(kind), "s": (0.01 + 0.01 * rng.random(scales)).astype(F32)}
        constants["z"] = np.full(scales, 3, kind)
        constants["b"] = rng.standard_normal(columns).astype(F32)
        node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "s", "z", "b"], ["y"], domain=MS)
        yield f"dynamic_{kind.__name__}", [node], {"x": x}, constants, ["y"]
        node = helper.make_node("MatMulIntegerToFloat", ["a", "w", "as", "s", "az", "z", "b"], ["y"], domain=MS)
        a = rng.integers(0, 256, (rows, terms)).astype(U8)
        yield f"to_float_{kind.__name__}", [node], {"a": a}, constants | {"as": np.array([0.02], F32), "az": np.array([120], U8)}, ["y"]
    # ONNX Runtime quantises the states of a batch by themselves where it has a thread for each.
    times, batch, inputs, hidden = 5, 2, 4, 3
    x = rng.standard_normal((times, batch, inputs)).astype(F32)
    for direction, count, kind, each in [("forward", 1, I8, False), ("bidirectional", 2, U8, True)]:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        # ONNX Runtime takes one scale for each direction, or one for each column.
        dims = (count, 4 * hidden) if each else (count,)
        number = lambda: (0.005 + 0.01 * rng.random(dims)).astype(F32)
        zero = lambda: np.zeros(dims, kind) if kind is I8 else np.full(dims, 128, kind)
        constants = {
            "w": rng.integers(low, high + 1, (count, inputs, 4 * hidden)).astype(kind),
            "r": rng.integers(low, high + 1, (count, hidden, 4 * hidden)).astype(kind),
            "b": rng.standard_normal((count, 8 * hidden)).astype(F32),
            "ws": number(), "wz": zero(), "rs": number(), "rz": zero(),
        }
        names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
        node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain=MS, hidden_size=hidden, direction=direction)
        yield f"lstm_{direction}", [node], {"x": x}, constants, ["y", "h", "c"]


def attentions(rng):
    """GroupQueryAttention: prompts and steps, rotary positions, windows, biases."""
    heads, groups, depth = 4, 2, 16
    for name, rows, past, batch, side, more in [
        ("prompt", 5, 0, 2, False, {}),
        ("step", 1, 6, 2, False, {}),
        ("rotary", 4, 0, 1, True, {"do_rotary": 1}),
        ("rotary_step", 1, 5, 2, True, {"do_rotary": 1, "rotary_interleaved": 1}),
        ("window", 6, 0, 1, False, {"local_window_size": 3}),
        ("window_step", 1, 7, 1, False, {"local_window_size": 4}),
        ("cap", 3, 0, 1, False, {"softcap": 2.0, "scale": 0.5}),
        ("bias", 3, 0, 1, False, {}),
    ]:
        total = past + rows
        normal = lambda *dims: rng.standard_normal(dims).astype(F32)
        inputs = {"q": normal(batch, rows, (heads + 2 * groups) * depth if side else heads * depth)}
        names = ["q", "", "", "pk", "pv", "lengths", "total", "", "", "", ""]
        if not side:
            inputs |= {"k": normal(batch, rows, groups * depth), "v": normal(batch, rows, groups * depth)}
            names[1:3] = ["k", "v"]
        inputs |= {"pk": normal(batch, groups, past, depth), "pv": normal(batch, groups, past, depth)}
        inputs["lengths"] = np.full(batch, total - 1, I32)
        constants = {"total": np.array(total, I32)}
        if more.get("do_rotary"):
            angles = rng.uniform(0, 6, (16, depth // 2))
            constants |= {"cos": np.cos(angles).astype(F32), "sin": np.sin(angles).astype(F32)}
            names[7:9] = ["cos", "sin"]
        if name == "bias":
            inputs["bias"] = normal(batch, heads, rows, total)
            names[10] = "bias"
        node = helper.make_node("GroupQueryAttention", names, ["y", "keys", "values"], domain=MS, num_heads=heads, kv_num_heads=groups, **more)
        yield f"attention_{name}", [node], inputs, constants, ["y", "keys", "values"]


def cases(seed):
    rng = np.random.default_rng(seed)
    for family in [products, tables, integers, attentions]:
        for name, nodes, inputs, constants, outputs in family(rng):
            model = model_of(nodes, inputs, constants, outputs)
            try:
                yield name, model, inputs, golden_cases.of_onnx_runtime(model, inputs)
            except Exception as error:  # Cases that ONNX Runtime refuses are not compared.
                print(f"{name}: ONNX Runtime: {str(error)[:200]}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        made = (case for seed in range(int(sys.argv[3]), int(sys.argv[4])) for case in cases(seed))
        golden_cases.check(sys.argv[2], made, RELATIVE, ABSOLUTE)
    else:
        for name, model, inputs, outputs in cases(1):
            golden_cases.write(FOLDER / name, model, inputs, outputs, RELATIVE, ABSOLUTE)
