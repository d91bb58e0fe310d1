#!/usr/bin/env python3
"""Compares language models with llama.cpp on the CPU: tokens per second for a prompt and for generation, by storage format and number of threads.

    llama.py write FOLDER                                   # GGUF files with random weights; needs nothing but Python
    llama.py measure FOLDER --eutectic ../../target/release/eutectic --threads 1 2 --rounds 3
    llama.py table FOLDER/llama.jsonl

`measure` runs both engines alternately on the same file, in new processes, on as many CPUs as threads. It appends a line for each process
to FOLDER/llama.jsonl. It needs llama-cpp-python, built from source; where AMX is listed and traps, with other instruction sets named:

    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" pip install llama-cpp-python

The wheel xllamacpp 2026.10 on PyPI has kernels for AVX2 only, which is unfair on a CPU with AVX-512. A library that was built
without pip is used with `PYTHONPATH=llama_cpp_python-VERSION LLAMA_CPP_LIB_PATH=build/bin`. The table says which instructions llama.cpp uses, and
the read bandwidth that one of our kernels reaches with as many threads.
"""

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

# Width, inner width, layers, heads, groups, tokens: Llama-3.2-1B, a Llama of Qwen3-0.6B's size, and a tiny one.
SHAPES = {
    "llama-1b": (2048, 8192, 16, 32, 8, 128256),
    "qwen-0.6b": (1024, 3072, 28, 16, 8, 151936),
    "tiny": (256, 512, 2, 4, 2, 1000),
}
# The format's number in files, elements and bytes of a block, and the values of its 16-bit floats by offset. Weights are about 0.02.
FORMATS = {
    "f16": (1, 1, 2, {}),
    "q8_0": (8, 32, 34, {0: 3e-4}),
    "q6_k": (14, 256, 210, {208: 2e-5}),
    "q5_k": (13, 256, 176, {0: 5e-5, 2: 4e-4}),
    "q4_k": (12, 256, 144, {0: 1e-4, 2: 4e-4}),
    "q5_1": (7, 32, 24, {0: 2.4e-3, 2: -0.037}),
    "q5_0": (6, 32, 22, {0: 2.4e-3}),
    "q4_1": (3, 32, 20, {0: 5e-3, 2: -0.037}),
    "q4_0": (2, 32, 18, {0: 5e-3}),
}
ALIGNMENT = 32


def half(x):
    return struct.pack("<e", x)


def blocks(name, count):
    """Returns the bytes of `count` blocks with random codes. A few thousand blocks are repeated, which does not change times."""
    _, _, size, floats = FORMATS[name]
    some = min(count, 4096)
    chunk = bytearray(random.randbytes(some * size))
    if name == "f16":
        chunk = bytearray(b"".join(half(random.gauss(0, 0.02)) for _ in range(some)))
    for at, value in floats.items():
        for block in range(some):
            chunk[block * size + at : block * size + at + 2] = half(value * random.uniform(0.5, 1.5))
    whole, rest = divmod(count, some)
    return bytes(chunk) * whole + bytes(chunk[: rest * size])


def value(kind, x):
    kinds = {"u32": (4, "<I"), "f32": (6, "<f"), "i32": (5, "<i")}
    if kind == "text":
        data = x.encode()
        return 8, struct.pack("<Q", len(data)) + data
    if kind == "texts":
        return 9, struct.pack("<IQ", 8, len(x)) + b"".join(value("text", t)[1] for t in x)
    if kind in ("f32s", "i32s"):
        number, code = kinds[kind[:-1]]
        return 9, struct.pack("<IQ", number, len(x)) + struct.pack(f"<{len(x)}{code[1]}", *x)
    number, code = kinds[kind]
    return number, struct.pack(code, x)


def metadata(shape):
    width, inner, layers, heads, groups, tokens = SHAPES[shape]
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{n:02X}>" for n in range(256)]
    words += [f"\u2581t{n}" for n in range(tokens - len(words))]
    pairs = {
        "general.architecture": ("text", "llama"),
        "general.alignment": ("u32", ALIGNMENT),
        "llama.context_length": ("u32", 4096),
        "llama.embedding_length": ("u32", width),
        "llama.block_count": ("u32", layers),
        "llama.feed_forward_length": ("u32", inner),
        "llama.attention.head_count": ("u32", heads),
        "llama.attention.head_count_kv": ("u32", groups),
        "llama.rope.dimension_count": ("u32", width // heads),
        "llama.rope.freq_base": ("f32", 500000.0),
        "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
        "llama.vocab_size": ("u32", tokens),
        "tokenizer.ggml.model": ("text", "llama"),
        "tokenizer.ggml.tokens": ("texts", words),
        "tokenizer.ggml.scores": ("f32s", [-float(n) for n in range(tokens)]),
        "tokenizer.ggml.token_type": ("i32s", [2, 3, 3] + [6] * 256 + [1] * (tokens - 259)),
        "tokenizer.ggml.bos_token_id": ("u32", 1),
        "tokenizer.ggml.eos_token_id": ("u32", 2),
        "tokenizer.ggml.unknown_token_id": ("u32", 0),
    }
    return {key: value(*pair) for key, pair in pairs.items()}


def tensors(shape):
    """Returns names and extents, the fastest axis first. Vectors are `f32`."""
    width, inner, layers, heads, groups, tokens = SHAPES[shape]
    keys = width // heads * groups
    yield "token_embd.weight", (width, tokens)
    yield "output_norm.weight", (width,)
    for layer in range(layers):
        of_layer = {
            "attn_norm": (width,),
            "ffn_norm": (width,),
            "attn_q": (width, width),
            "attn_k": (width, keys),
            "attn_v": (width, keys),
            "attn_output": (width, width),
            "ffn_gate": (width, inner),
            "ffn_up": (width, inner),
            "ffn_down": (inner, width),
        }
        for name, extents in of_layer.items():
            yield f"blk.{layer}.{name}.weight", extents


def write(path, shape, name):
    number, elements, size, _ = FORMATS[name]
    pairs, infos, data, at = metadata(shape), b"", [], 0
    for tensor, extents in tensors(shape):
        count = 1
        for extent in extents:
            count *= extent
        kind = 0 if len(extents) == 1 else number
        content = struct.pack("<f", 1.0) * count if kind == 0 else (name, count // elements)
        length = 4 * count if kind == 0 else count // elements * size
        text = tensor.encode()
        infos += struct.pack("<Q", len(text)) + text + struct.pack("<I", len(extents))
        infos += struct.pack(f"<{len(extents)}Q", *extents) + struct.pack("<IQ", kind, at)
        data.append((content, length))
        at += -(-length // ALIGNMENT) * ALIGNMENT
    with open(path + ".part", "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(data), len(pairs)))
        for key, (kind, content) in pairs.items():
            file.write(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + content)
        file.write(infos)
        file.write(bytes(-file.tell() % ALIGNMENT))
        for content, length in data:
            file.write(content if isinstance(content, bytes) else blocks(*content))
            file.write(bytes(-length % ALIGNMENT))
    os.replace(path + ".part", path)


def llama(path, threads, prompt, generate, runs):
    """Prints llama.cpp's times of a model, in this process."""
    import ctypes

    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    room = prompt + generate
    model = llama_cpp.Llama(path, n_ctx=room, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    times = [[], []]
    for run in range(runs + 1):
        words = random.Random(run).choices(range(300, model.n_vocab()), k=room)
        model.reset()
        start = time.perf_counter()
        model.eval(words[:prompt])
        read = time.perf_counter()
        for word in words[prompt:]:
            model.eval([word])
        end = time.perf_counter()
        if run > 0:
            times[0].append(prompt / (read - start))
            times[1].append(generate / (end - read))
    system = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"prompt": statistics.median(times[0]), "generate": statistics.median(times[1]), "system": system}))


def ours(args, path, threads):
    command = [args.eutectic, "bench", path, "--prompt", args.prompt, "--generate", args.generate, "--threads", threads]
    command += ["--iters", args.runs, "--warmup", 1, "--format", "json"]
    found = json.loads(processors(threads, command))
    return {
        "prompt": found["prompt"]["tokens_per_second"],
        "generate": found["generate"]["tokens_per_second"],
        "bytes": found["bytes_per_token"],
        "bandwidth": found["bandwidth_bytes_per_second"],
    }


def theirs(args, path, threads):
    command = [sys.executable, __file__, "llama", path, threads, args.prompt, args.generate, args.runs]
    return json.loads(processors(threads, command))


def processors(threads, command):
    """Runs a command on as many CPUs as threads, and returns its output."""
    allowed = sorted(os.sched_getaffinity(0))[:threads]
    pin = lambda: os.sched_setaffinity(0, allowed)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True, preexec_fn=pin)
    return done.stdout.strip().splitlines()[-1] if command[0] == sys.executable else done.stdout


def measure(args):
    engines = {"eutectic": ours, "llama.cpp": theirs}
    with open(f"{args.folder}/llama.jsonl", "a") as out:
        for turn in range(args.rounds):
            for name in args.formats:
                for threads in args.threads:
                    path = f"{args.folder}/{args.shape}-{name}.gguf"
                    for engine in list(engines)[:: 1 if turn % 2 == 0 else -1]:
                        found = engines[engine](args, path, threads)
                        line = {"shape": args.shape, "format": name, "threads": threads, "engine": engine, **found}
                        print(json.dumps(line), file=out, flush=True)
                        print(line, flush=True)
    table(f"{args.folder}/llama.jsonl")


def table(path):
    """Prints medians over the rounds, and the share of the bandwidth that one of our kernels reads with as many threads."""
    with open(path) as file:
        lines = [json.loads(line) for line in file]
    keys = dict.fromkeys((line["shape"], line["format"], line["threads"]) for line in lines)
    for system in dict.fromkeys(line["system"] for line in lines if "system" in line):
        print(f"llama.cpp: {system}")
    print("shape      format threads | GB/s read | prompt t/s ours llama ratio | generate t/s ours llama ratio | bytes of bandwidth ours llama")
    for shape, name, threads in keys:
        of = [line for line in lines if (line["shape"], line["format"], line["threads"]) == (shape, name, threads)]

        def median(engine, what):
            return statistics.median([line[what] for line in of if line["engine"] == engine] or [float("nan")])

        figures = [[median(engine, what) for engine in ("eutectic", "llama.cpp")] for what in ("prompt", "generate")]
        bandwidth = median("eutectic", "bandwidth")
        share = median("eutectic", "bytes") / bandwidth
        text = " | ".join(f"{a:8.2f} {b:8.2f} {a / b:5.2f}" for a, b in figures)
        print(f"{shape:10} {name:6} {threads:7} | {bandwidth / 1e9:9.1f} | {text} | {figures[1][0] * share:.2f} {figures[1][1] * share:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "measure"):
        command = commands.add_parser(name)
        command.add_argument("folder")
        command.add_argument("--shape", choices=SHAPES, default="llama-1b")
        command.add_argument("--formats", nargs="+", choices=FORMATS, default=["f16", "q8_0", "q6_k", "q5_k", "q4_k", "q4_1", "q4_0"])
    command.add_argument("--eutectic", default="eutectic")
    command.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    command.add_argument("--rounds", type=int, default=3)
    command.add_argument("--runs", type=int, default=2)
    command.add_argument("--prompt", type=int, default=512)
    command.add_argument("--generate", type=int, default=64)
    commands.add_parser("table").add_argument("path")
    peer = commands.add_parser("llama")
    peer.add_argument("path")
    peer.add_argument("numbers", nargs=4, type=int)
    args = parser.parse_args()
    if args.command == "write":
        os.makedirs(args.folder, exist_ok=True)
        for name in args.formats:
            path = f"{args.folder}/{args.shape}-{name}.gguf"
            if not os.path.exists(path):
                write(path, args.shape, name)
    elif args.command == "measure":
        measure(args)
    elif args.command == "table":
        table(args.path)
    else:
        llama(args.path, *args.numbers)


if __name__ == "__main__":
    main()
