#!/usr/bin/env python3
"""Measures ncnn on a GPU with Vulkan, in the same call as our engine: square products and a transformer encoder layer.

`vulkan_ncnn.py [gemm] [innerproduct] [conv1x1] [layer] [layer-mha]`, runs all cases or those named; `--help` lists the options. Needs numpy and ncnn's wheel on
PYTHONPATH; weights are made from a seed. A product is that of a matrix and a constant one, as the layer Gemm (what pnnx makes of nn.Linear),
InnerProduct, or a Convolution of 1x1. The encoder layer is one of BERT-base, norms after the sums, as pnnx exports it: `layer` with Gemm,
Reshape, Permute and SDPA, `layer-mha` with MultiHeadAttention. GELU is by tanh, the only one that ncnn has on Vulkan.

A run gives an array of float32 and takes one back, as users of ncnn do: `ms` is its median. `copy` is the median of a program with the same
input and output that computes nothing (Noop) and `net` the difference. `step` needs no such program: it is what each more of the layer adds
to a program that has several in a row, the best estimate of the time on the device, though ncnn records commands anew in each run and that
is in it. `error` is the largest difference from numpy in float64, of the largest magnitude there.
"""
import argparse
import statistics
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import ncnn
import numpy as np

HIDDEN, HEADS, INNER, EPSILON = 768, 12, 3072, 1e-5
# ncnn's options for storage in f16 and for the type of sums. With storage in f16, ncnn uses the cooperative matrices of a device that has
# them, because this option is on and ncnn's Python module cannot turn it off.
PRECISIONS = {
    "f32": dict(use_fp16_packed=False, use_fp16_storage=False, use_fp16_arithmetic=False),
    "f16": dict(use_fp16_packed=True, use_fp16_storage=True, use_fp16_arithmetic=True),
    "f16-sums-f32": dict(use_fp16_packed=True, use_fp16_storage=True, use_fp16_arithmetic=False),
}


class Program:
    """Layers and weights, in the form of ncnn's two files."""

    def __init__(self):
        self.layers, self.weights, self.blobs = [], [], 0

    def add(self, kind, inputs, parameters=(), weights=(), outputs=1):
        """Appends a layer and returns the names of its outputs."""
        tops = [f"b{self.blobs + i}" for i in range(outputs)]
        self.blobs += outputs
        values = [f"{key}={value}" for key, value in dict(parameters).items()]
        self.layers.append(" ".join([kind, f"l{len(self.layers)}", str(len(inputs)), str(outputs), *inputs, *tops, *values]))
        self.weights += weights
        return tops

    def text(self):
        return "\n".join(["7767517", f"{len(self.layers)} {self.blobs}", *self.layers, ""])

    def linear(self, x, rows, weight, bias):
        """Adds x times the transpose of a weight, as pnnx writes nn.Linear."""
        columns, depth = weight.shape
        parameters = {2: 0, 3: 1, 4: 0, 5: 1, 6: 1, 7: rows, 8: columns, 9: depth, 10: -1 if bias is None else 4}
        return self.add("Gemm", [x], parameters, [tagged(w) for w in (weight, bias) if w is not None])[0]


def plain(array):
    return array.astype("<f4").tobytes()


def tagged(array):
    """Returns a weight after the tag for float32."""
    return struct.pack("<I", 0) + plain(array)


@dataclass
class Case:
    name: str
    source: np.ndarray
    build: Callable  # Adds a layer to a program, from the name of its input blob to that of its output blob.
    reference: Callable
    operations: int
    more: int  # The number of layers in the longer program, which gives `step`.


def square(kind, n):
    random = np.random.default_rng(n)
    x, weight = (random.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    weight /= np.float32(n**0.5)
    case = Case(f"{kind} {n}", x, None, lambda: x.astype(float) @ weight.T.astype(float), 2 * n**3, 9 if n > 2048 else 17)
    if kind == "gemm":
        case.build = lambda program, blob: program.linear(blob, n, weight, None)
    elif kind == "innerproduct":
        case.build = lambda program, blob: program.add("InnerProduct", [blob], {0: n, 1: 0, 2: n * n}, [tagged(weight)])[0]
    else:  # The rows of x are channels, and its columns are positions.
        case.source = x.reshape(n, 1, n)
        case.reference = lambda: weight.astype(float) @ x.astype(float)
        case.build = lambda program, blob: program.add("Convolution", [blob], {0: n, 1: 1, 5: 0, 6: n * n}, [tagged(weight)])[0]
    return case


def encoder(kind, tokens):
    random = np.random.default_rng(tokens)

    def matrix(columns, depth):
        return random.standard_normal((columns, depth), dtype=np.float32) / np.float32(depth**0.5)

    def vector(size, middle=0.0):
        return (middle + 0.1 * random.standard_normal(size)).astype(np.float32)

    x = random.standard_normal((tokens, HIDDEN), dtype=np.float32)
    # Weights and biases of queries, keys, values and the output, and then of the MLP's two layers.
    heads = [(matrix(HIDDEN, HIDDEN), vector(HIDDEN)) for _ in range(4)]
    up, down = (matrix(INNER, HIDDEN), vector(INNER)), (matrix(HIDDEN, INNER), vector(HIDDEN))
    norms = [(vector(HIDDEN, 1.0), vector(HIDDEN)) for _ in range(2)]

    def attention(program, blob):
        if kind == "layer-mha":
            parameters = {0: HIDDEN, 1: HEADS, 2: HIDDEN * HIDDEN, 3: HIDDEN, 4: HIDDEN}
            weights = [to_bytes(w) for pair in heads for to_bytes, w in zip((tagged, plain), pair)]
            return program.add("MultiHeadAttention", [blob], parameters, weights)[0]
        parts = []
        for copy, (weight, bias) in zip(program.add("Split", [blob], outputs=3), heads):
            apart = program.add("Reshape", [program.linear(copy, tokens, weight, bias)], {0: HIDDEN // HEADS, 1: HEADS, 2: tokens})
            parts += program.add("Permute", apart, {0: 2})
        mixed = program.add("Permute", program.add("SDPA", parts), {0: 2})
        return program.linear(program.add("Reshape", mixed, {0: HIDDEN, 1: tokens})[0], tokens, *heads[3])

    def normed_sum(program, one, other, norm):
        total = program.add("BinaryOp", [one, other], {0: 0})
        return program.add("LayerNorm", total, {0: HIDDEN, 1: EPSILON, 2: 1}, [plain(w) for w in norm])[0]

    def build(program, blob):
        for_sum, for_attention = program.add("Split", [blob], outputs=2)
        middle = normed_sum(program, for_sum, attention(program, for_attention), norms[0])
        for_sum, for_mlp = program.add("Split", [middle], outputs=2)
        inner = program.add("GELU", [program.linear(for_mlp, tokens, *up)], {0: 1})[0]
        return normed_sum(program, for_sum, program.linear(inner, tokens, *down), norms[1])

    def reference():
        def linear(a, pair):
            return a @ pair[0].T.astype(float) + pair[1]

        def normed(a, pair):
            spread = np.sqrt(a.var(-1, keepdims=True) + EPSILON)
            return (a - a.mean(-1, keepdims=True)) / spread * pair[0] + pair[1]

        y = x.astype(float)
        q, k, v = (linear(y, pair).reshape(tokens, HEADS, -1).transpose(1, 0, 2) for pair in heads[:3])
        scores = q @ k.transpose(0, 2, 1) / (HIDDEN // HEADS) ** 0.5
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(tokens, HIDDEN)
        y = normed(y + linear(mixed, heads[3]), norms[0])
        inner = linear(y, up)
        inner = 0.5 * inner * (1 + np.tanh((2 / np.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
        return normed(y + linear(inner, down), norms[1])

    operations = 2 * tokens * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER) + 4 * tokens * tokens * HIDDEN
    return Case(f"{kind} {tokens}", x, build, reference, operations, 12)


class Refused(Exception):
    """ncnn cannot run a program, or cannot run it with Vulkan."""


class Loaded:
    """A loaded program of consecutive layers. All its layers run with Vulkan."""

    def __init__(self, case, layers, precision, options):
        program = Program()
        blob = self.input = program.add("Input", [])[0]
        for _ in range(layers):
            blob = case.build(program, blob)
        self.output = blob if layers else program.add("Noop", [blob])[0]
        self.net = ncnn.Net()
        self.net.opt.use_vulkan_compute = True
        self.net.opt.num_threads = options.threads
        self.net.opt.use_bf16_storage = self.net.opt.use_bf16_packed = False
        for option, value in PRECISIONS[precision].items():
            setattr(self.net.opt, option, value)
        self.net.set_vulkan_device(options.gpu)
        with tempfile.TemporaryDirectory() as folder:
            text, weights = Path(folder, "net.param"), Path(folder, "net.bin")
            text.write_text(program.text())
            with weights.open("wb") as file:
                file.writelines(program.weights)
            if self.net.load_param(str(text)) or self.net.load_model(str(weights)):
                raise Refused("ncnn does not load it")
        on_host = [f"{layer.type} {layer.name}" for layer in self.net.layers() if not layer.support_vulkan]
        if on_host or not self.net.opt.use_vulkan_compute:
            raise Refused(f"not by Vulkan: {on_host or 'anything'}")
        self.source = ncnn.Mat(case.source)

    def run(self):
        extractor, result = self.net.create_extractor(), ncnn.Mat()
        if failed := extractor.input(self.input, self.source) or extractor.extract(self.output, result):
            raise Refused(f"a run returns {failed}")
        return result


def milliseconds(program, options):
    """Returns the median time of a run."""
    until = time.perf_counter() + options.warmup
    program.run()
    while time.perf_counter() < until:
        program.run()
    times, until = [], time.perf_counter() + options.seconds
    while len(times) < 3 or (len(times) < options.runs and time.perf_counter() < until):
        start = time.perf_counter()
        program.run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def measure(case, precision, exact, options):
    """Returns a line with the times of a case."""
    copy = milliseconds(Loaded(case, 0, precision, options), options)
    one = Loaded(case, 1, precision, options)
    error = np.abs(np.array(one.run()).reshape(exact.shape) - exact).max() / np.abs(exact).max()
    whole = milliseconds(one, options)
    del one  # Frees its large weights.
    step = (milliseconds(Loaded(case, case.more, precision, options), options) - whole) / (case.more - 1)
    rates = [case.operations / ms * 1e-9 if ms > 0 else float("nan") for ms in (whole - copy, step)]
    return f"{whole:9.3f} {copy:9.3f} {whole - copy:9.3f} {rates[0]:9.3f} {step:9.3f} {rates[1]:9.3f} {error:9.1e}"


KINDS = {"gemm": square, "innerproduct": square, "conv1x1": square, "layer": encoder, "layer-mha": encoder}


def main():
    def numbers(text):
        return [int(n) for n in text.split(",")]

    def precisions(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all of them by default")
    parser.add_argument("--sizes", type=numbers, default=[1024, 2048, 4096], help="of products, multiples of 4 (default: 1024,2048,4096)")
    parser.add_argument("--tokens", type=numbers, default=[128, 512], help="of the encoder layer (default: 128,512)")
    parser.add_argument("--precision", type=precisions, default=list(PRECISIONS), help=f"of {','.join(PRECISIONS)} (default: all)")
    parser.add_argument("--runs", type=int, default=50, help="timed, at most (default: 50)")
    parser.add_argument("--seconds", type=float, default=3.0, help="that the runs of a case take at most, three runs at least (default: 3)")
    parser.add_argument("--warmup", type=float, default=0.3, help="seconds of runs before them (default: 0.3)")
    parser.add_argument("--threads", type=int, default=4, help="of the host, for casts (default: 4)")
    parser.add_argument("--gpu", type=int, default=0, help="as ncnn counts (default: 0)")
    options = parser.parse_args()
    for word, known in [*((k, KINDS) for k in options.kinds), *((p, PRECISIONS) for p in options.precision)]:
        if word not in known:
            parser.error(f"{word}: not one of {', '.join(known)}")
    if options.gpu >= ncnn.get_gpu_count():
        sys.exit(f"ncnn sees {ncnn.get_gpu_count()} GPUs")
    device = ncnn.get_gpu_info(options.gpu)
    versions = f"driver {device.driver_version():#x}, Vulkan {device.api_version():#x}"
    print(f"ncnn {ncnn.__version__} on {device.device_name()}, {versions}", flush=True)
    columns = "".join(f"{word:>10}" for word in ("ms", "copy", "net", "TFLOP/s", "step", "TFLOP/s", "error"))
    print(f"{'case':18} {'precision':13}{columns}")
    for kind in options.kinds or KINDS:
        for size in options.sizes if KINDS[kind] is square else options.tokens:
            case = KINDS[kind](kind, size)
            exact = case.reference()
            for precision in options.precision:
                try:
                    line = measure(case, precision, exact, options)
                except Refused as refused:
                    line = str(refused)
                print(f"{case.name:18} {precision:13} {line}", flush=True)
    ncnn.destroy_gpu_instance()


if __name__ == "__main__":
    main()
