#!/usr/bin/env python3
"""Compares exports of transformers and torchvision, by both of torch's exporters, with ONNX Runtime or OpenVINO.

    ~/.cache/eutectic-peers/venv/bin/python benches/peers/architectures.py export [GLOB ...]     # minutes; existing files stay
    ... architectures.py measure [GLOB ...]      # with a peer (--against), on one thread, alternately; on an idle machine
    ... architectures.py plans [GLOB ...]        # the chosen plan against the unfused and the greedy one; fails above 1.1
    ... architectures.py table                   # results as markdown; --csv FILE also writes CSV

A name is ARCHITECTURE.ATTENTION.EXPORTER (`bert.sdpa.dynamo`). Exports and their inputs are in $PEERS_DIR/onnx/arch, with one JSON
file of results each. `measure` and `plans` skip architectures with results, unless --again is given, and stop within --seconds.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ("local", "unfused", "greedy")


def export(args):
    import warnings

    import torch
    import zoo

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in zoo.names():
        for attention, exporter in zoo.variants(name):
            label = f"{name}.{attention}.{exporter}"
            folder = args.folder / label
            if not chosen(label, args.globs) or (folder / "state").exists():
                continue
            folder.mkdir(parents=True, exist_ok=True)
            start = time.monotonic()
            try:
                model, given = zoo.make(name, attention)
                write(model, given, folder, exporter == "dynamo")
                state = "written"
            except Exception as error:  # A failing exporter does not stop the others.
                state = f"not exported: {type(error).__name__}: {first_line(error)}"
            (folder / "state").write_text(state)
            print(f"{label}: {state} ({time.monotonic() - start:.0f} s)", flush=True)


def write(model, given, folder, dynamo):
    import torch

    how = {"dynamo": dynamo, "opset_version": 20 if dynamo else 17, "input_names": list(given), "output_names": ["y"], "verbose": False}
    # Small models are one file. The weights of large ones are external data, which is the exporter's default.
    if dynamo:
        how["external_data"] = sum(p.numel() for p in model.parameters()) > 50_000_000
    with torch.no_grad():
        torch.onnx.export(model, tuple(given.values()), str(folder / "model.onnx"), **how)
    for key, value in given.items():
        np.save(folder / f"{key}.npy", value.numpy())


def first_line(error):
    return (str(error).strip().splitlines() or [""])[0][:160]


def chosen(label, globs):
    return not globs or any(fnmatch.fnmatch(label, glob) or fnmatch.fnmatch(label.split(".")[0], glob) for glob in globs)


def inputs(folder):
    return sorted(folder.glob("*.npy"))


def child(command, seconds):
    """Runs a process, and returns its output, its error and its peak memory in bytes."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=err)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - start > seconds:
                process.kill()
                os.wait4(process.pid, 0)
                return "", f"no answer after {seconds} s", 0
            time.sleep(0.005)
        process.returncode = status
        out.seek(0), err.seek(0)
        said, error = out.read().decode(), err.read().decode(errors="replace")
    return said, "" if status == 0 else error or f"status {status}", usage.ru_maxrss * 1024


def ours(folder, args, output, iters, *more):
    """Returns the report of `eutectic bench` on a model."""
    given = [word for path in inputs(folder) for word in ("--input", f"{path.stem}=@{path}")]
    options = ["--threads", 1, "--iters", iters, "--warmup", 2, "--format", "json", "--output", output, *more]
    if args.costs:
        options += ["--costs", args.costs]
    said, error, peak = child([args.eutectic, "bench", folder / "model.onnx", *options, *given], args.timeout)
    if error:
        return {"error": error.strip()[-1500:]}
    return json.loads(said) | {"peak": peak}


def peer(folder, args, output, iters):
    """Returns the same report for a peer."""
    given = [word for path in inputs(folder) for word in ("--input", f"{path.stem}=@{path}")]
    command = [sys.executable, HERE / "peer.py", args.against, "bench", folder / "model.onnx", *given]
    options = ["--threads", 1, "--iters", iters, "--warmup", 2, "--output", output]
    said, error, peak = child([*command, *options], args.timeout)
    return {"error": error.strip().splitlines()[-1][-300:]} if error else json.loads(said) | {"peak": peak}


def nodes(folder):
    """Counts nodes in a separate process. The peak memory of a child is at least that of its parent at the start."""
    program = "import onnx, sys; print(len(onnx.load(sys.argv[1], load_external_data=False).graph.node))"
    said, error, _ = child([sys.executable, "-c", program, folder / "model.onnx"], 60)
    return None if error else int(said)


def difference(mine, theirs):
    """Returns the largest difference relative to the largest element, and the reason if there is none. It runs in a separate process, because results may be large."""
    said, error, _ = child([sys.executable, __file__, "difference", mine, theirs], 60)
    return (None, error.strip().splitlines()[-1]) if error else (json.loads(said), "")


def print_difference(args):
    print(json.dumps(largest_difference(np.load(args.mine), np.load(args.theirs))))


def largest_difference(a, b):
    if a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.size == 0 or np.array_equal(a, b, equal_nan=True):
        return 0.0
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def measure(args):
    for label, folder in written(args):
        result = folder / args.result
        if result.exists() and not args.again:
            continue
        row = {"name": label, "nodes": nodes(folder)}
        with tempfile.TemporaryDirectory() as scratch:
            mine, theirs = pathlib.Path(scratch, "a.npy"), pathlib.Path(scratch, "b.npy")
            ratios, us, them = [], {}, {}
            iters = 3
            for turn in range(args.rounds + 1):
                # The first turn determines the number of iterations.
                us = ours(folder, args, mine, iters, *(["--explain"] if turn == 0 else []))
                them = peer(folder, args, theirs, iters)
                if "error" in us or "error" in them:
                    break
                if turn == 0:
                    row["steps"] = [[s["kernel"], s["origin"], s["predicted_us"], s["measured_us"]] for s in us["steps"]]
                    row["compile_ms"], row["open_ms"] = us["compile_ms"], them["open_ms"]
                    row["error"], uncompared = difference(mine, theirs)
                    iters = int(min(200, max(3, args.each * 1e3 / max(np.median(us["times_ms"]), 0.01))))
                    continue
                row["compile_ms"] = min(row["compile_ms"], us["compile_ms"])
                ratios.append((float(np.median(us["times_ms"])), float(np.median(them["times_ms"]))))
        if "error" in us:
            row["state"] = "error: " + us["error"].replace("\n", " ")
        elif "error" in them:
            row["state"] = f"{args.against}: {them['error']}"
        else:
            right = row["error"] is not None and row["error"] < 1e-4
            row["state"] = "not compared: " + uncompared if uncompared else "ok" if right else "wrong"
            row |= {"ms": float(np.median([r[0] for r in ratios])), "peer_ms": float(np.median([r[1] for r in ratios]))}
            row |= {"ratio": float(np.median([a / b for a, b in ratios])), "kernels": us["kernels"], "predicted_ms": us["predicted_ms"]}
            row |= {"peak": us["peak"], "peer_peak": them["peak"], "arena": us["arena_bytes"]}
        result.write_text(json.dumps(row))
        print(line(row), flush=True)


def plans(args):
    """Measures plans alternately. The exit code is 1 if the chosen one takes more than 1.1 times as long as another."""
    dear, regrets = [], []
    for label, folder in written(args):
        result = folder / "plans.json"
        if result.exists() and not args.again:
            row = json.loads(result.read_text())
        else:
            with tempfile.TemporaryDirectory() as scratch:
                row, output, iters = {"name": label}, pathlib.Path(scratch, "y.npy"), 3
                times = {strategy: [] for strategy in STRATEGIES}
                for turn in range(args.rounds + 1):
                    for strategy in STRATEGIES:
                        said = ours(folder, args, output, iters, "--strategy", strategy)
                        if "error" in said:
                            row["error"] = f"{strategy}: {said['error'][:300]}"
                            continue
                        row[f"{strategy}_predicted_ms"] = said["predicted_ms"]
                        median = float(np.median(said["times_ms"]))
                        if turn:
                            times[strategy].append(median)
                        elif strategy == "local":
                            iters = int(min(200, max(3, args.each * 1e3 / max(median, 0.01))))
                row |= {f"{strategy}_ms": float(np.median(of)) for strategy, of in times.items() if of}
                result.write_text(json.dumps(row))
        best = min((row[f"{s}_ms"] for s in STRATEGIES if f"{s}_ms" in row), default=None)
        if best is None or "local_ms" not in row:
            print(f"{label:<36} {row.get('error', 'not measured')}", flush=True)
            continue
        factor = row["local_ms"] / best
        shown = "  ".join(f"{s} {row.get(f'{s}_ms', float('nan')):.3f} ({row.get(f'{s}_predicted_ms', float('nan')):.3f})" for s in STRATEGIES)
        print(f"{label:<36} {shown}  chosen/best {factor:.2f}", flush=True)
        regrets.append(factor)
        if factor > 1.1:
            dear.append(f"{label}: {factor:.2f}")
    if regrets:
        median, tenth = np.quantile(regrets, (0.5, 0.9))
        print(f"regret over {len(regrets)} exports: {median:.3f} in the median, {tenth:.3f} in one of ten, {max(regrets):.3f} at most")
    if dear:
        raise SystemExit("dearer than 1.1 of another plan: " + ", ".join(dear))


def written(args):
    """Returns the selected exports, until the time is over."""
    end = time.monotonic() + args.seconds
    for state in sorted(args.folder.glob("*/state")):
        label = state.parent.name
        if chosen(label, args.globs) and state.read_text() == "written":
            if time.monotonic() > end:
                print("the time is over; again for the rest")
                return
            yield label, state.parent


COLUMNS = ("name", "state", "error", "nodes", "kernels", "compile_ms", "peak", "peer_peak", "ms", "peer_ms", "ratio")


def cell(row, key):
    value = row.get(key)
    if value is None:
        return ""
    if key in ("peak", "peer_peak"):
        return f"{value / 2**20:.0f}"
    return {"error": "{:.1e}", "compile_ms": "{:.0f}", "ms": "{:.3f}", "peer_ms": "{:.3f}", "ratio": "{:.2f}"}.get(key, "{}").format(value)


def line(row):
    return " | ".join(cell(row, key)[:400] for key in COLUMNS)


def table(args):
    rows = []
    for state in sorted(args.folder.glob("*/state")):
        result = state.parent / args.result
        said = state.read_text()
        if not chosen(state.parent.name, args.globs):
            continue
        if result.exists():
            rows.append(json.loads(result.read_text()))
        elif said != "written":
            rows.append({"name": state.parent.name, "state": said})
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for row in rows:
        short = row | {"state": row.get("state", "")[:120].replace("|", "/")}
        print("| " + line(short) + " |")
    fine = [row for row in rows if "ratio" in row]
    if fine:
        ratios = np.array([row["ratio"] for row in fine])
        print(f"\n{len(rows)} exports of {len({row['name'].split('.')[0] for row in rows})} architectures, {len(fine)} measured; ", end="")
        print(f"geometric mean of ours/{args.against} {np.exp(np.log(ratios).mean()):.3f}, above 1.25: {(ratios > 1.25).sum()}; ", end="")
        print(f"largest error {max(row['error'] for row in fine):.1e}; longest optimizing {max(row['compile_ms'] for row in fine):.0f} ms")
        predictions(fine)
    if args.csv:
        import csv

        with open(args.csv, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(COLUMNS)
            out.writerows([[row.get(key, "") for key in COLUMNS] for row in rows])


def predictions(rows):
    """Returns the errors of predicted kernel times, after removing a common factor for the machine."""
    steps = [(p, m, row["name"], kind, origin) for row in rows for kind, origin, p, m in row["steps"] if p and m > 1]
    ratio = np.array([m / p for p, m, *_ in steps])
    machine = np.median(ratio)
    off = np.exp(np.abs(np.log(ratio / machine)))
    ranks = [np.argsort(np.argsort([s[at] for s in steps])) for at in (0, 1)]
    print(f"{len(steps)} kernels: measured/predicted {machine:.2f} (the machine), then off by {np.median(off):.2f} in the median; ", end="")
    print(f"rank correlation {np.corrcoef(*ranks)[0, 1]:.3f}")
    worst = sorted((s for s in zip(off, steps) if s[1][1] > 50 and s[0] > 5), key=lambda s: -s[1][1])
    print(f"off by more than 5 above 50 µs: {len(worst)}")
    for far, (p, m, name, kind, origin) in worst[:60]:
        print(f"  {far:5.1f}  measured {m:9.0f} µs, predicted {p:9.1f}  {name}  {kind}  {origin[:90]}")


def main():
    peers = pathlib.Path(os.environ.get("PEERS_DIR") or pathlib.Path.home() / ".cache/eutectic-peers")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, of in (("export", export), ("measure", measure), ("plans", plans), ("table", table)):
        command = commands.add_parser(name)
        command.set_defaults(of=of)
        command.add_argument("globs", nargs="*", metavar="GLOB", help="names or architectures; all if none")
        command.add_argument("--folder", type=pathlib.Path, default=peers / "onnx" / "arch")
        command.add_argument("--eutectic", type=pathlib.Path, default=HERE.parents[1] / "target/release/eutectic")
        command.add_argument("--against", default="onnxruntime", choices=("onnxruntime", "openvino", "tract"))
        command.add_argument("--costs", type=pathlib.Path, help="a file of `eutectic tune`")
        command.add_argument("--rounds", type=int, default=3)
        command.add_argument("--each", type=float, default=0.2, help="seconds of iterations of a process, about")
        command.add_argument("--seconds", type=float, default=float("inf"), help="when to start no other model")
        command.add_argument("--timeout", type=float, default=120, help="seconds after which a process is given up")
        command.add_argument("--again", action="store_true")
        command.add_argument("--csv", type=pathlib.Path)
    command = commands.add_parser("difference")
    command.set_defaults(of=print_difference)
    command.add_argument("mine", type=pathlib.Path)
    command.add_argument("theirs", type=pathlib.Path)
    args = parser.parse_args()
    args.result = f"result.{getattr(args, 'against', '')}.json"
    args.of(args)


if __name__ == "__main__":
    main()
