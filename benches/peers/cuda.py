#!/usr/bin/env python3
"""What torch takes on a GPU for the kernels that `cargo run --release -p eutectic-cuda --example device -- time` and `... products` time,
to be run in the same call, whole or one of its parts (rows_and_maps, products, attention) by name: medians over replays of a recorded graph, in microseconds. Products of float32 are exact (no tf32), as ours are.
"""
import statistics
import sys

import torch
import torch.nn.functional as F

CALLS, REPLAYS = 20, 9
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def random(*shape, dtype=SINGLE):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def microseconds(call):
    """The median time of a call, of which a graph holds many."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / CALLS * 1e3)
    return statistics.median(times)


def show(name, call):
    print(f"{name:40} {microseconds(call):9.2f} us", flush=True)


def rows_and_maps():
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    moved = 2 * source.numel() * source.element_size()
    print(f"copy of 1 GiB {moved / microseconds(lambda: target.copy_(source)) * 1e-3:.0f} GB/s")
    small, other, large = random(4096, 768), random(4096, 768), random(65536, 1024)
    long, tall = random(8, 128256), random(8192, 4096)
    show("residual, LayerNorm 4096x768", lambda: F.layer_norm(small + other, (768,)))
    show("LayerNorm 65536x1024", lambda: F.layer_norm(large, (1024,)))
    show("softmax 4096x768", lambda: F.softmax(small, -1))
    show("softmax 65536x1024", lambda: F.softmax(large, -1))
    show("softmax 8x128256", lambda: F.softmax(long, -1))
    show("sum of columns 8192x4096", lambda: tall.sum(0))


# Rows, depth and columns, as `device products` has them; those of all, and those of float32 too.
SHAPES = [
    (128, 384, 1152), (128, 384, 384), (128, 384, 1536), (128, 1536, 384), (128, 768, 2304), (128, 768, 3072),
    (4096, 768, 2304), (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (4900, 768, 2304), (4900, 768, 768),
    (4096, 1280, 3840), (4096, 1280, 5120), (4096, 5120, 1280), (1, 2048, 2048), (1, 2048, 5632), (1, 5632, 2048),
    (1, 2048, 32000), (4, 2048, 8192), (16, 2048, 8192), (64, 4096, 4096), (512, 4096, 4096), (2048, 2048, 2048),
    (4096, 4096, 4096), (8192, 8192, 8192), (197, 768, 3072), (1, 4096, 14336), (32, 4096, 14336), (4096, 2304, 256),
]
SINGLE_SHAPES = SHAPES[:6] + SHAPES[15:21]
NAMES = {HALF: "f16", BRAIN: "bf16", SINGLE: "f32"}


def products():
    for dtype, shapes in [(HALF, SHAPES), (SINGLE, SINGLE_SHAPES)]:
        for m, k, n in shapes:
            x, w, b = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
            show(f"linear {m}x{k}x{n} {NAMES[dtype]} none", lambda: F.linear(x, w, b))
    for m, k, n in [(4096, 768, 3072), (1, 2048, 5632), (3136, 768, 2304)]:
        x, w = random(m, k, dtype=HALF), random(k, n, dtype=HALF)
        show(f"product {m}x{k}x{n} f16", lambda: x @ w)
    for dtype in (SINGLE, HALF, BRAIN):
        x, w = random(4096, 4096, dtype=dtype), random(4096, 4096, dtype=dtype)
        show(f"product 4096 {dtype}", lambda: x @ w)


def attention():
    cases = [(1, 12, 4096, 4096, 64, HALF), (1, 12, 4096, 4096, 64, SINGLE), (25, 12, 196, 196, 64, HALF), (1, 32, 1, 8192, 128, HALF)]
    for batch, heads, queries, keys, depth, dtype in cases:
        q = random(batch, heads, queries, depth, dtype=dtype)
        k, v = (random(batch, heads, keys, depth, dtype=dtype) for _ in range(2))
        show(f"attention {batch}x{heads} {queries}x{keys} d{depth} {dtype}", lambda: F.scaled_dot_product_attention(q, k, v))


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for part in (rows_and_maps, products, attention):
        if part.__name__ in sys.argv[1:] or not sys.argv[1:]:
            part()
