#!/usr/bin/env python3
"""Compares `eutectic` with OpenVINO, ONNX Runtime, torch.compile and tract in interleaved runs: medians, ratios, outputs.

Run after setup.sh, with its Python: ~/.cache/eutectic-peers/venv/bin/python benches/peers/compare.py
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RESAMPLES = 4000
TIMEOUT_S = 900
OURS = "eutectic"
HERE = pathlib.Path(__file__).resolve().parent


def fail(what):
    raise SystemExit(f"compare: {what}")


try:
    import numpy as np
    import peer
    import workloads
except ImportError as error:
    fail(f"{error}; run benches/peers/setup.sh and start this with ~/.cache/eutectic-peers/venv/bin/python")


def run(program, model, inputs, threads, args, folder):
    """Runs a new process, and returns the milliseconds of each iteration and the first output.

    The memory layout changes times by about 3 %. A single process would have the same layout in all rounds, which no confidence
    interval shows.
    """
    output = folder / "output.npy"
    output.unlink(missing_ok=True)
    options = {"--threads": threads, "--iters": args.iters, "--warmup": args.warmup, "--format": "json", "--output": output}
    command = [*program, "bench", model, *(word for option in options.items() for word in option)]
    command += [word for name in inputs for word in ("--input", f"{name}=@{folder / name}.npy")]
    command = [str(word) for word in command]
    shown = f"`{' '.join(command)}`"
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except OSError as error:
        fail(f"cannot start {command[0]}: {error.strerror}; cargo build --release, or pass --eutectic PATH")
    except subprocess.TimeoutExpired:
        fail(f"no answer after {TIMEOUT_S} s from {shown}; lower --iters, or see by hand why it hangs")
    if child.returncode != 0:
        fail(f"{shown} ended with {child.returncode}: {child.stderr.strip()[-2000:]}")
    try:
        times = np.array(json.loads(child.stdout)["times_ms"], dtype=np.float64)
        return times, np.load(output)
    except (ValueError, KeyError, TypeError, OSError) as error:
        fail(f"{shown} gave neither times_ms nor its output: {error}; stdout: {child.stdout[:200]!r}")


def contenders(args):
    """Returns the command of each contender."""
    start = [sys.executable, HERE / "peer.py"]
    peers = {name: [*start, name, "--weights", args.peers / "minilm"] for name in args.against}
    return {OURS: [args.eutectic.resolve()]} | peers


def measure(name, threads, args, random):
    """Returns, for each contender, the median of each round, and the largest difference from the first peer's output.

    The difference is relative to the largest element of that output.
    """
    model = args.peers / "onnx" / f"{name}.onnx"
    programs = list(contenders(args).items())
    medians = {who: [] for who, _ in programs}
    distance = dict.fromkeys(medians, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for turn in range(args.rounds):
            inputs = workloads.INPUTS[name](random)
            for key, array in inputs.items():
                np.save(folder / f"{key}.npy", array)
            outputs = {}
            # The order changes, so a drift of the clock frequency favours nobody.
            for at in range(len(programs)):
                who, program = programs[(turn + at) % len(programs)]
                times, outputs[who] = run(program, model, inputs, threads, args, folder)
                medians[who].append(np.median(times))
            reference = outputs[args.against[0]]
            for who, output in outputs.items():
                if output.shape != reference.shape:
                    fail(f"{who} gives {list(output.shape)} on {name}, {args.against[0]} {list(reference.shape)}")
                # np.maximum keeps NaN, which Python's max() may drop.
                distance[who] = np.maximum(distance[who], np.abs(output - reference).max() / np.abs(reference).max())
    return {who: np.array(times) for who, times in medians.items()}, distance


def ratio(ours, peer, random):
    """Returns the median over the rounds of ours/peer, with a bootstrap 95 % interval over the rounds.

    Rounds are resampled, not iterations: iterations of one process are not independent of each other.
    """
    rounds = ours / peer
    draws = np.median(rounds[random.integers(0, len(rounds), (RESAMPLES, len(rounds)))], axis=1)
    return np.median(rounds), *np.percentile(draws, [2.5, 97.5])


def report(name, threads, medians, distance, random):
    best = min((who for who in medians if who != OURS), key=lambda who: np.median(medians[who]))
    middle, low, high = ratio(medians[OURS], medians[best], random)
    times = "".join(f"{np.median(times):>13.3f}" for times in medians.values())
    far = max(distance.values(), key=lambda d: (np.isnan(d), d))
    print(f"{name:<20}{threads:>3}{times}   {best:<12}{middle:>6.3f} [{low:.3f}, {high:.3f}]{far:>10.1g}", flush=True)


def arguments():
    root = HERE.parents[1]
    peers = os.environ.get("PEERS_DIR") or pathlib.Path.home() / ".cache/eutectic-peers"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(workloads.INPUTS)}; all if none")
    parser.add_argument("--against", nargs="+", choices=peer.PEERS, default=list(peer.PEERS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iters", type=int, default=20, help="timed iterations of each, a round")
    parser.add_argument("--warmup", type=int, default=5, help="untimed iterations before them")
    parser.add_argument("--seed", type=int, default=1, help="of the inputs and the bootstrap")
    parser.add_argument("--eutectic", type=pathlib.Path, default=root / "target/release/eutectic")
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(peers), help="where setup.sh put its things")
    args = parser.parse_args()
    if min(args.rounds, args.iters) < 1:
        parser.error("--rounds and --iters must be at least 1")
    args.workloads = args.workloads or list(workloads.INPUTS)
    for name in args.workloads:
        if name not in workloads.INPUTS:
            fail(f"there is no workload {name}; there are {', '.join(workloads.INPUTS)}")
        if not (args.peers / "onnx" / f"{name}.onnx").is_file():
            fail(f"{name}.onnx is missing in {args.peers / 'onnx'}; run benches/peers/setup.sh {name}")
    return args


def main():
    args = arguments()
    cpus = sorted(os.sched_getaffinity(0))
    if not 1 <= min(args.threads) <= max(args.threads) <= len(cpus):
        fail(f"--threads {args.threads} does not fit the {len(cpus)} CPUs this process may use; ask for 1 to that many")
    print(f"{args.rounds} rounds of {args.iters} iterations after {args.warmup}; {args.eutectic}", end="; ")
    print(f"{len(cpus)} CPUs, load {os.getloadavg()[0]:.1f}; milliseconds\n")
    heads = "".join(f"{who:>13}" for who in contenders(args))
    print(f"{'workload':<17}threads{heads[1:]}   {'best peer':<12}{'ours/best [95 %]':>22}  distance", flush=True)
    random = np.random.default_rng(args.seed)
    for name in args.workloads:
        for threads in args.threads:
            # Our engine pins its threads. For fairness, all processes inherit the same CPUs, as many as threads.
            os.sched_setaffinity(0, cpus[:threads])
            report(name, threads, *measure(name, threads, args, random), random)


if __name__ == "__main__":
    main()
