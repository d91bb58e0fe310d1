#!/usr/bin/env python3
"""Compares `eutectic` with ONNX Runtime on MiniLM in one interleaved run: medians, their ratio, and the outputs.

Run after setup.sh, with its Python: ~/.cache/eutectic-peers/venv/bin/python benches/peers/minilm.py
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HIDDEN = 384
RESAMPLES = 4000
TIMEOUT_S = 600
HERE = pathlib.Path(__file__).resolve().parent


def fail(what):
    raise SystemExit(f"minilm: {what}")


try:
    import numpy as np
except ImportError as error:
    fail(f"{error}; run benches/peers/setup.sh and start this with ~/.cache/eutectic-peers/venv/bin/python")


class Side:
    """One contender: a fresh process every round, told the token ids and where to put its output.

    A long-lived process would carry its luck with the memory layout, about 3 % on this workload, through all rounds,
    where no confidence interval sees it.
    """

    def __init__(self, program, weights, args, threads, folder):
        self.ids, self.output = folder / "ids.npy", folder / "output.npy"
        self.iters, self.shape = args.iters, (args.batch, args.seq, HIDDEN)
        options = {
            "--weights": weights,
            "--batch": args.batch,
            "--seq": args.seq,
            "--threads": threads,
            "--iters": args.iters,
            "--warmup": args.warmup,
            "--format": "json",
            "--ids": self.ids,
            "--output": self.output,
        }
        self.command = [str(word) for word in (*program, "bench", "minilm")]
        self.command += [str(word) for option in options.items() for word in option]

    def run(self, ids):
        """Milliseconds of each iteration, and the last hidden state."""
        np.save(self.ids, ids)
        self.output.unlink(missing_ok=True)
        shown = f"`{' '.join(self.command)}`"
        try:
            child = subprocess.run(self.command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except OSError as error:
            fail(f"cannot start {self.command[0]}: {error.strerror}; cargo build --release, or pass --eutectic PATH")
        except subprocess.TimeoutExpired:
            fail(f"no answer after {TIMEOUT_S} s from {shown}; lower --iters, or see by hand why it hangs")
        if child.returncode != 0:
            fail(f"{shown} ended with {child.returncode}: {child.stderr.strip()[-2000:]}")
        try:
            times = np.array(json.loads(child.stdout)["times_ms"], dtype=np.float64)
        except (ValueError, KeyError, TypeError):
            fail(f"stdout of {shown} is not a JSON object with the numbers times_ms: {child.stdout[:200]!r}")
        if times.shape != (self.iters,):
            fail(f"times_ms of {shown} has shape {list(times.shape)}, expected {self.iters} numbers")
        return times, self.read_output(shown)

    def read_output(self, shown):
        try:
            output = np.load(self.output)
        except (OSError, ValueError) as error:
            fail(f"the --output of {shown} is not a .npy file: {error}")
        if output.shape != self.shape or output.dtype != np.float32:
            fail(f"the --output of {shown} is {output.dtype} {list(output.shape)}, not float32 {list(self.shape)}")
        return output


def measure(args, threads, random):
    """Both sides' times [rounds, iters] and the largest difference of their outputs over all rounds."""
    ours, peer, difference = [], [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        eutectic = Side([args.eutectic.resolve()], args.weights.resolve(), args, threads, folder)
        onnx = Side([sys.executable, HERE / "ort_minilm.py"], args.peers / "onnx", args, threads, folder)
        for turn in range(args.rounds):
            ids = random.integers(1000, 30000, (args.batch, args.seq), dtype=np.int64)
            # Who goes first alternates, so that a drift of the clock favours neither.
            sides = (eutectic, onnx) if turn % 2 == 0 else (onnx, eutectic)
            results = {side: side.run(ids) for side in sides}
            ours.append(results[eutectic][0])
            peer.append(results[onnx][0])
            # np.maximum, since Python's max() would drop a NaN.
            difference = np.maximum(difference, np.abs(results[eutectic][1] - results[onnx][1]).max())
    return np.array(ours), np.array(peer), float(difference)


def ratio(ours, peer, random):
    """Median over the rounds of ours/peer, each of their medians, with a bootstrap 95 % interval over the rounds.

    Rounds are resampled, not iterations: iterations of one process are not independent of each other.
    """
    rounds = np.median(ours, axis=1) / np.median(peer, axis=1)
    draws = np.median(rounds[random.integers(0, len(rounds), (RESAMPLES, len(rounds)))], axis=1)
    return np.median(rounds), *np.percentile(draws, [2.5, 97.5])


def report(threads, ours, peer, difference, random):
    for name, times in (("eutectic", ours), ("onnxruntime", peer)):
        low, middle, high = np.percentile(times, [10, 50, 90])
        print(f"{threads:>7}  {name:<12}{middle:>10.3f}{low:>10.3f}{high:>10.3f}")
    middle, low, high = ratio(ours, peer, random)
    print(f"{threads:>7}  ours/ort {middle:.3f}  (95% {low:.3f} to {high:.3f}), outputs differ by {difference:.2g}\n")


def arguments():
    root = HERE.parents[1]
    peers = os.environ.get("PEERS_DIR") or pathlib.Path.home() / ".cache/eutectic-peers"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--iters", type=int, default=20, help="timed iterations of each side, a round")
    parser.add_argument("--warmup", type=int, default=5, help="untimed iterations before them")
    parser.add_argument("--seed", type=int, default=1, help="of the token ids and the bootstrap")
    parser.add_argument("--eutectic", type=pathlib.Path, default=root / "target/release/eutectic")
    parser.add_argument("--weights", type=pathlib.Path, default=root / "target/minilm", help="for ours")
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(peers), help="where setup.sh put its things")
    args = parser.parse_args()
    for name in ("batch", "seq", "rounds", "iters"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not (args.weights / "model.safetensors").is_file():
        fail(f"{args.weights / 'model.safetensors'} is missing; run models/scripts/fetch-minilm.sh {args.weights}")
    return args


def main():
    args = arguments()
    cpus = sorted(os.sched_getaffinity(0))
    if not 1 <= min(args.threads) <= max(args.threads) <= len(cpus):
        fail(f"--threads {args.threads} does not fit the {len(cpus)} CPUs this process may use; ask for 1 to that many")
    print(f"MiniLM {args.batch}x{args.seq} float32: {args.rounds} rounds of {args.iters} iterations", end=" ")
    print(f"after {args.warmup}; {args.eutectic}; {len(cpus)} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print(f"threads  {'':<12}{'median ms':>10}{'p10':>10}{'p90':>10}", flush=True)
    random = np.random.default_rng(args.seed)
    for threads in args.threads:
        # Ours pins its threads; so that this is no privilege, both inherit the same CPUs, as many as threads.
        os.sched_setaffinity(0, cpus[:threads])
        report(threads, *measure(args, threads, random), random)


if __name__ == "__main__":
    main()
