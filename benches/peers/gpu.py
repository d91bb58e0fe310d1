#!/usr/bin/env python3
"""Measures torch on a GPU, in the same call as our engine: medians over replays of a recorded graph, in microseconds. As in our
engine, products of float32 do not use tf32.

`gpu.py [rows_and_maps] [products] [attention]` times all of these parts or the named ones. Their kernels are those of
`cargo run --release -p eutectic-benches --example kernels -- cuda` (or vulkan) and of
`cargo run --release -p eutectic-cuda --example device -- products`.
`gpu.py models [--precision tf32|f16|bf16] [WORD…]` times the models of
`cargo run --release -p eutectic-benches --example models -- --backend cuda`, eager and by torch.compile, both as graphs.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CALLS, REPLAYS = 20, 9
HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


def random(*shape, dtype=SINGLE):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def microseconds(call):
    """Returns the median time of a call. A graph contains many calls."""
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


# M, K and N of products, as in `device products`. `SINGLE_SHAPES` are measured in float32, too.
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
    short(True)
    for m, k, n in [SHAPES[8], SHAPES[0], SHAPES[24], SHAPES[9]]:
        x, w, b = random(m, k), random(n, k), random(n)
        show(f"linear {m}x{k}x{n} tf32 none", lambda: F.linear(x, w, b))
    short(False)
    for dtype in (SINGLE, HALF, BRAIN):
        x, w = random(4096, 4096, dtype=dtype), random(4096, 4096, dtype=dtype)
        show(f"product 4096 {dtype}", lambda: x @ w)


# Batch times heads, queries, keys and depth, as in `device attention`.
HEADS = [
    (12, 128, 128, 32), (384, 128, 128, 64), (12, 512, 512, 64), (300, 196, 196, 64), (12, 4096, 4096, 64), (16, 4096, 4096, 80),
    (32, 1, 1024, 64), (32, 1, 8192, 128), (256, 1, 4096, 128), (32, 2048, 2048, 128), (32, 8192, 8192, 128), (64, 1024, 1024, 64),
]


def attention():
    """Measures the fastest of torch's kernels. Relative positions of rows and columns are one stored bias."""
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

    def best(name, q, k, v, **how):
        times = []
        for backend in backends:
            try:
                with sdpa_kernel(backend):
                    times.append(microseconds(lambda: F.scaled_dot_product_attention(q, k, v, **how)))
            except RuntimeError:  # This kernel does not accept these operands.
                pass
        print(f"{name:40} {min(times):9.2f} us", flush=True)

    def operands(heads, queries, keys, depth, dtype):
        return [random(1, heads, n, depth, dtype=dtype) for n in (queries, keys, keys)]

    for dtype in (HALF, BRAIN):
        for heads, queries, keys, depth in HEADS if dtype == HALF else [h for h in HEADS if 2048 <= h[1] < 8192]:
            q, k, v = operands(heads, queries, keys, depth, dtype)
            name = f"attention {heads}x{queries}x{keys} d{depth} {NAMES[dtype]}"
            best(name, q, k, v)
            if dtype == HALF and queries == keys and queries >= 1024:
                best(name + " causal", q, k, v, is_causal=True)
    for heads, side, depth in [(12, 64, 64), (16, 64, 80), (300, 14, 64)]:
        q, k, v = operands(heads, side * side, side * side, depth, HALF)
        rows, columns = (random(1, heads, side * side, side, dtype=HALF) for _ in range(2))
        bias = (rows[..., None] + columns[..., None, :]).flatten(-2)
        best(f"attention {heads}x{side * side}x{side * side} d{depth} f16 positions", q, k, v, attn_mask=bias)
    q, k, v = operands(12, 4096, 4096, 64, SINGLE)
    best("attention 12x4096x4096 d64 f32", q, k, v)
    short(True)
    best("attention 12x4096x4096 d64 tf32", q, k, v)
    short(False)


def bert(layers, hidden, inner, batch):
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=inner)
    model = BertModel(config, add_pooling_layer=False)
    ids = torch.randint(0, 30000, (batch, 128), device="cuda")
    mask = torch.ones(batch, 128, device="cuda", dtype=torch.long)
    return model, lambda m: m(input_ids=ids, attention_mask=mask).last_hidden_state


def sam(hidden, layers, heads, whole, dtype):
    from transformers import SamVisionConfig
    from transformers.models.sam.modeling_sam import SamVisionEncoder

    shape = dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, mlp_dim=4 * hidden)
    image = random(1, 3, 1024, 1024, dtype=dtype)
    return SamVisionEncoder(SamVisionConfig(**shape, global_attn_indexes=whole)), lambda m: m(image)[0]


def llama(positions):
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    shape = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
    config = LlamaConfig(**shape, vocab_size=128256, max_position_embeddings=positions, tie_word_embeddings=True)
    cache = StaticCache(config=config, max_cache_len=positions)
    ids, at = torch.ones(1, 1, device="cuda", dtype=torch.long), torch.tensor([[positions - 1]], device="cuda")
    given = dict(input_ids=ids, position_ids=at, cache_position=at[0], past_key_values=cache, use_cache=True)
    return LlamaForCausalLM(config), lambda m: m(**given).logits


MODELS = {
    "minilm 1x128": lambda dtype: bert(6, 384, 1536, 1),
    "bert-base 1x128": lambda dtype: bert(12, 768, 3072, 1),
    "bert-base 32x128": lambda dtype: bert(12, 768, 3072, 32),
    "sam-vit-b": lambda dtype: sam(768, 12, 12, [2, 5, 8, 11], dtype),
    "sam-vit-h": lambda dtype: sam(1280, 32, 16, [7, 15, 23, 31], dtype),
    "llama-1b decode kv1024": lambda dtype: llama(1024),
}


def replayed(call):
    """Returns the median time from the start of a replay to its end, on the host."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(45):
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[5:]) * 1e6


def models(dtype, words):
    for name, make in MODELS.items():
        if words and not any(word in name for word in words):
            continue
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model, call = make(dtype)
        model = model.to("cuda", dtype).eval()
        for how in ("eager", "compile"):
            try:
                start = time.perf_counter()
                module = torch.compile(model) if how == "compile" else model
                with torch.no_grad():
                    call(module)
                    torch.cuda.synchronize()
                    first = time.perf_counter() - start
                    took = replayed(lambda: call(module))
                peak = torch.cuda.max_memory_allocated() >> 20
                print(f"{name:24} {how:8} {took:9.1f} us; first call {first:.1f} s; peak {peak} MiB", flush=True)
            except Exception as error:
                # Runs that cannot be recorded as a graph, because they copy from the host, have no time.
                print(f"{name:24} {how:8} {str(error).splitlines()[0]}", flush=True)
        del model, call


def short(allowed):
    """Sets whether products of float32 may use tf32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


if __name__ == "__main__":
    short(False)
    words = sys.argv[1:]
    if words[:1] == ["models"]:
        dtype, words = SINGLE, words[1:]
        if words[:1] == ["--precision"]:
            short(words[1] == "tf32")
            dtype, words = {"tf32": SINGLE, "f16": HALF, "bf16": BRAIN}[words[1]], words[2:]
        models(dtype, words)
        sys.exit()
    for part in (rows_and_maps, products, attention):
        if part.__name__ in sys.argv[1:] or not sys.argv[1:]:
            part()
