"""Tests random graphs (`run`), tests one graph again (`repeat`), or lists the ops without a generator (`ops`)."""

import argparse
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from . import campaign, kinds
from .engine import Engine
from .generate import graph
from .reduce import Reducer
from .references import References
from .specs import STEPS, WITHOUT


def main(arguments=None):
    """Runs a command. Returns the exit code, which is 1 if a disagreement is not explained."""
    parser = argparse.ArgumentParser(prog='fuzzer', description=__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    run = commands.add_parser('run', help='judges random graphs')
    run.add_argument('--count', type=int, default=1000, help='the number of graphs [1000]')
    run.add_argument('--seconds', type=float, help='stops after this number of seconds')
    run.add_argument('--first', type=int, default=0, help='the number of the first graph [0]')
    run.add_argument('--out', type=Path, default=Path('target/differential'), help='the folder of failures [target/differential]')
    run.add_argument('--reduce-seconds', type=float, default=900, help='the total seconds for reducing failures [900]')
    run.add_argument('--most', type=int, default=3, help='the number of failures of each kind that are reduced [3]')
    repeat = commands.add_parser('repeat', help='judges one graph again and reduces it')
    repeat.add_argument('graph', type=int, help='the number of the graph')
    repeat.add_argument('--out', type=Path, help='the folder that the reduced case is written to')
    ops = commands.add_parser('ops', help='lists the ops of the importer that have no generator')
    for command in (run, repeat, ops):
        command.add_argument('--binary', default='target/release/eutectic', help='the binary under test [target/release/eutectic]')
    for command in (run, repeat):
        command.add_argument('--seed', type=int, default=1, help='the seed of the campaign [1]')
        command.add_argument('--mode', choices=list(campaign.MODES), action='append', help='judges by this contract only; may be repeated')
    args = parser.parse_args(arguments)
    for other in other_versions():
        print(f'warning: {other}: its faults may differ from those in fuzzer/known.py; install requirements.txt', file=sys.stderr)
    binary = shutil.which(args.binary)
    if binary is None:
        parser.error(f'cannot run {args.binary}, because there is no such program; build it, or name one with --binary')
    return {'run': run_campaign, 'repeat': repeat_graph, 'ops': list_ops}[args.command](args, binary)


def other_versions():
    """Returns as texts the packages whose versions differ from those that `known.py` describes."""
    pinned = Path(__file__).parent.parent / 'requirements.txt'
    wanted = dict(line.split('==') for line in pinned.read_text().split() if '==' in line)
    return [f'{name} is {version(name)}, not {of}' for name, of in wanted.items() if version(name) != of]


def scratch():
    """Returns the folder of temporary files, which is in memory if possible."""
    return '/dev/shm' if Path('/dev/shm').is_dir() else None


def run_campaign(args, binary):
    """Judges graphs, reduces the first failures of each kind, and prints the table of kinds."""
    modes = args.mode or list(campaign.MODES)
    report = campaign.run(binary, args.seed, args.first, args.count, modes, scratch(), args.seconds)
    found = kinds.collect(report.findings, binary, args, scratch())
    print(f'\n{dict(report.counts)}')
    print(f'{len(report.ops)} ops in {sum(report.ops.values())} nodes')
    print(kinds.table(found))
    return 1 if any(kind.reason is None for kind in found) else 0


def repeat_graph(args, binary):
    """Judges one graph, and reduces and prints its disagreements."""
    opset = campaign.opset_of(args.seed, args.graph // campaign.BATCH)
    case = graph(References(), args.seed, args.graph, opset)
    print(case.text() if case else 'no step fits this graph number')
    wrong = 0
    for mode in args.mode or list(campaign.MODES):
        reducer = Reducer(Engine(binary, scratch()), References(), args.seed, mode)
        failure = reducer.failures([case])[0]
        print(f'{mode}: {failure[0] + ": " + failure[1] if failure else "agrees"}')
        if failure:
            wrong = 1
            case_, failure = reducer.reduce(case, failure[0])
            print(f'reduced: {case_.text()}\n  {failure[0]}: {failure[1]}')
            if args.out:
                kinds.write(args.out / mode, case_, References(), failure, mode, args.seed, args.graph)
    return wrong


def list_ops(args, binary):
    """Prints the ops of the importer that have no generator. Returns 1 if the reason for one is not given."""
    known = set().union(*(Engine(binary).known_ops(opset) for opset in (9, 24, 26)))
    missing = sorted(known - set(STEPS))
    print(f'{len(known)} ops are known to the importer, {len(known & set(STEPS))} have a generator')
    for op in missing:
        print(f'{op}: {WITHOUT.get(op, "no generator, and the reason is not given")}')
    return 1 if set(missing) - set(WITHOUT) else 0


if __name__ == '__main__':
    sys.exit(main())
