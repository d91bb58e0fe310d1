#!/usr/bin/env python3
"""Compares architectures of `zoo.py` on a GPU with torch.compile under CUDA graphs, in one call on the same machine.

    gpu_architectures.py measure --eutectic BINARY --precision f16 --seconds 540 --out rows.jsonl [GLOB ...]
    gpu_architectures.py table rows.jsonl          # markdown: ratios, errors, and errors of predicted kernel times

`measure` exports each architecture by torch's script exporter, plans it, and checks the output against torch in f32 on the processor. Workers do this in
parallel. Once all of them are done, or the time is over, they measure one after the other on the quiet machine, so `--seconds` does not include about
two seconds per architecture. Both sides begin and end in page-locked memory of the host. A time is one that a fifth of the runs stay below.
It needs torch, torchvision and transformers. An architecture that is not reached in time has no row.
"""
import argparse
import contextlib
import fnmatch
import json
import math
import multiprocessing
import pathlib
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
RUNS = 40


def typical(times):
    """Returns the time that a fifth of the runs stay below."""
    return sorted(times)[len(times) // 5]


# The largest allowed error, relative to the largest element.
TOLERANCE = {"f32": 1e-3, "tf32": 2e-2, "f16": 5e-2, "bf16": 2e-1}


def ours(args, folder, *more):
    """Runs `eutectic bench` on an exported model, and returns its JSON."""
    given = [word for path in sorted(folder.glob("in_*.npy")) for word in ("--input", f"{path.stem[3:]}=@{path}")]
    command = [args.eutectic, "bench", folder / "model.onnx", "--backend", args.backend, "--precision", args.precision, "--format", "json", *given, *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError("eutectic: " + " ".join(done.stderr.split())[-300:])
    return json.loads(done.stdout)


def error_of(result, wanted):
    """Returns the largest difference, relative to the largest element."""
    import numpy as np

    result, wanted = result.astype(np.float64), wanted.astype(np.float64)
    if result.shape != wanted.shape or np.isnan(result).any() != np.isnan(wanted).any():
        return math.inf
    return float(np.nanmax(np.abs(result - wanted), initial=0.0) / max(np.nanmax(np.abs(wanted), initial=0.0), 1e-30))


def replayed(module, given):
    """Returns the time in milliseconds of a replay that copies inputs to the device, runs the module, and copies the output back."""
    import torch

    pinned = [x.pin_memory() for x in given]
    placed = [x.to("cuda") for x in given]
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                result = module(*placed)
        torch.cuda.synchronize()
        back = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for target, source in zip(placed, pinned):
                target.copy_(source, non_blocking=True)
            back.copy_(module(*placed), non_blocking=True)
    times = []
    for _ in range(RUNS + 5):
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return typical(times[5:]), back.float().numpy()


def prepared(name, args, folder):
    """Exports, plans, checks and compiles an architecture. Returns a function that measures it and returns its row."""
    import numpy as np
    import torch

    sys.path.insert(0, str(HERE))
    import zoo

    torch.set_num_threads(1)
    model, given = zoo.make(name, zoo.variants(name)[-1][0])
    with torch.no_grad():
        wanted = model(*given.values()).float().numpy()
        torch.onnx.export(model, tuple(given.values()), str(folder / "model.onnx"), dynamo=False, opset_version=17, input_names=list(given), output_names=["y"])
    for key, value in given.items():
        np.save(folder / f"in_{key}.npy", value.numpy())
    row = {"name": name, "precision": args.precision, "backend": args.backend}
    planned = ours(args, folder, "--iters", 1, "--warmup", 1, "--save-plan", folder / "plan", "--output", folder / "y.npy")
    row |= {"plan_ms": planned["compile_ms"], "error": error_of(np.load(folder / "y.npy"), wanted), "predicted_ms": planned["predicted_ms"]}
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}.get(args.precision, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in given.values()]
    try:
        torch.compiler.reset()
        module = model.to("cuda", dtype)
        if inputs[0].dim() == 4 and args.precision != "f32":
            module = module.to(memory_format=torch.channels_last)
        module = torch.compile(module)
        with torch.no_grad():
            module(*[x.to("cuda") for x in inputs])
    except Exception as error:  # A model that torch cannot compile has no ratio.
        row["torch_error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"

    def measured():
        if "torch_error" not in row:
            try:
                row["torch_ms"], result = replayed(module, inputs)
                row["torch_difference"] = error_of(result, wanted)
            except Exception as error:
                row["torch_error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        run = ours(args, folder, "--iters", RUNS, "--warmup", 5, "--plan", folder / "plan", "--explain")
        steps = [[s["kernel"], s["origin"], s["predicted_us"], s["measured_us"]] for s in run["steps"]]
        return row | {"ms": typical(run["times_ms"]), "kernels": run["kernels"], "steps": steps}

    return measured


def work(args, names, quiet, lock, rows):
    """Prepares architectures until none is left or the time is over. Measures them when all workers have ended their preparation."""
    def tried(name, step):
        try:
            return step()
        except Exception as error:
            rows.put({"name": name, "precision": args.precision, "failed": f"{type(error).__name__}: {str(error)[:300]}"})

    with tempfile.TemporaryDirectory() as folder:
        ready = []
        while time.time() < args.until:
            try:
                name = names.get(timeout=1)
            except queue.Empty:
                break
            own = pathlib.Path(folder) / name
            own.mkdir()
            measured = tried(name, lambda: prepared(name, args, own))
            if measured:
                ready.append((name, measured))
        # A worker that crashed never reaches the barrier, so the others continue after a timeout.
        with contextlib.suppress(threading.BrokenBarrierError):
            quiet.wait(args.until - time.time() + 60)
        for name, measured in ready:
            with lock:
                row = tried(name, measured)
            if row:
                rows.put(row)


def measure(args):
    import zoo

    all_names = [name for name in zoo.names() if not args.globs or any(fnmatch.fnmatch(name, glob) for glob in args.globs)]
    # In a random order, so that different architectures are skipped in each run.
    random.Random(args.seed).shuffle(all_names)
    args.until = time.time() + args.seconds
    context = multiprocessing.get_context("spawn")
    names, rows, quiet, lock = context.Queue(), context.Queue(), context.Barrier(args.workers), context.Lock()
    for name in all_names:
        names.put(name)
    workers = [context.Process(target=work, args=(args, names, quiet, lock, rows)) for _ in range(args.workers)]
    for worker in workers:
        worker.start()
    with open(args.out, "a") as out:
        while any(worker.is_alive() for worker in workers) or not rows.empty():
            with contextlib.suppress(queue.Empty):
                out.write(json.dumps(rows.get(timeout=1)) + "\n")
                out.flush()


def table(args):
    rows = [json.loads(line) for path in args.files for line in open(path)]
    done = sorted((row for row in rows if "ms" in row), key=lambda row: -row["ms"] / row.get("torch_ms", math.inf))
    print("| architecture | precision | torch.compile ms | ours ms | ratio | error | plan ms | predicted ms | farthest kernel: measured µs (predicted) |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in done:
        steps = [step for step in row["steps"] if step[2] and step[3] > 5]
        far = max(steps, key=lambda step: step[3] - step[2], default=None)
        far = f"{far[0]} {far[3]:.0f} ({far[2]:.0f})" if far else ""
        theirs = f"{row['torch_ms']:.3f}" if "torch_ms" in row else row.get("torch_error", "")[:60]
        ratio = f"{row['ms'] / row['torch_ms']:.2f}" if "torch_ms" in row else ""
        wrong = "" if row["error"] <= TOLERANCE[row["precision"]] else " **wrong**"
        print(f"| {row['name']} | {row['precision']} | {theirs} | {row['ms']:.3f} | {ratio} | {row['error']:.1e}{wrong} | {row['plan_ms']:.0f} | {row['predicted_ms']:.3f} | {far} |")
    ratios = [row["ms"] / row["torch_ms"] for row in done if "torch_ms" in row]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"\n{len(ratios)} ratios: geometric mean {mean:.3f}, largest {max(ratios):.2f}, {sum(r > 1.1 for r in ratios)} above 1.1")
    factors = [max(s[3] / s[2], s[2] / s[3]) for row in done for s in row["steps"] if s[2] and s[3]]
    large = [max(s[3] / s[2], s[2] / s[3]) for row in done for s in row["steps"] if s[2] and s[3] > 50]
    if factors:
        print(f"{len(factors)} kernels: predictions off by {statistics.median(factors):.2f} in the median; of {len(large)} above 50 µs, {sum(f > 5 for f in large)} by more than 5")
    for row in rows:
        if "failed" in row:
            print(f"{row['name']} {row['precision']}: {row['failed']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("globs", nargs="*")
    one.add_argument("--eutectic", required=True)
    one.add_argument("--backend", default="cuda")
    one.add_argument("--precision", default="f32", choices=TOLERANCE)
    one.add_argument("--seconds", type=float, default=540)
    one.add_argument("--workers", type=int, default=12)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", required=True)
    one.set_defaults(run=measure)
    two = commands.add_parser("table")
    two.add_argument("files", nargs="+")
    two.set_defaults(run=table)
    args = parser.parse_args()
    run = args.__dict__.pop("run")
    run(args)


if __name__ == "__main__":
    main()
