#!/usr/bin/env python3
"""What torch takes on a GPU, to be run in the same call as ours; medians over replays of a recorded graph, in microseconds. Products of
float32 are exact (no tf32), as ours are.

`gpu.py` times the kernels of `cargo run --release -p eutectic-cuda --example device -- time`; `gpu.py models [--precision f16|bf16] [WORD…]`
the models of `cargo run --release -p eutectic-benches --example models -- --backend cuda`, eager and by torch.compile, both as graphs.
"""
import statistics
import sys
import time

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


def products():
    for m, k, n, dtypes in [(4096, 768, 3072, (SINGLE, HALF)), (128, 384, 1152, (SINGLE, HALF)), (1, 2048, 5632, (HALF,))]:
        for dtype in dtypes:
            x, w, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(n, dtype=dtype)
            show(f"linear {m}x{k}x{n} {dtype}", lambda: torch.addmm(b, x, w))
    for dtype in (SINGLE, HALF, BRAIN):
        x, w = random(4096, 4096, dtype=dtype), random(4096, 4096, dtype=dtype)
        show(f"product 4096 {dtype}", lambda: x @ w)


def attention():
    cases = [(1, 12, 4096, 4096, 64, HALF), (1, 12, 4096, 4096, 64, SINGLE), (25, 12, 196, 196, 64, HALF), (1, 32, 1, 8192, 128, HALF)]
    for batch, heads, queries, keys, depth, dtype in cases:
        q = random(batch, heads, queries, depth, dtype=dtype)
        k, v = (random(batch, heads, keys, depth, dtype=dtype) for _ in range(2))
        show(f"attention {batch}x{heads} {queries}x{keys} d{depth} {dtype}", lambda: F.scaled_dot_product_attention(q, k, v))


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
    "llama-1b decode kv1024": lambda dtype: llama(1024),
}


def replayed(call):
    """The median time from the start of a replay to its end, as the host sees it."""
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
                # What cannot be recorded as a graph (copies from the host within a run) has no figure.
                print(f"{name:24} {how:8} {str(error).splitlines()[0]}", flush=True)
        del model, call


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    words = sys.argv[1:]
    if words[:1] == ["models"]:
        dtype, words = SINGLE, words[1:]
        if words[:1] == ["--precision"]:
            dtype, words = {"f16": HALF, "bf16": BRAIN}[words[1]], words[2:]
        models(dtype, words)
        sys.exit()
    rows_and_maps()
    products()
    attention()
