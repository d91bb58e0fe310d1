"""Sorts findings into kinds, reduces the first ones of each kind, and writes files that repeat the failures."""

import collections
import time
from dataclasses import dataclass, replace

import numpy as np

from .campaign import Finding
from .engine import Engine
from .evaluate import evaluate
from .explained import explain
from .graph import merged
from .reduce import Reducer
from .references import References
from .values import BF16


@dataclass
class Kind:
    """Findings whose reduced graphs have the same ops and the same sort of difference."""
    name: str
    finding: Finding
    case: object
    detail: str
    count: int
    reason: str = None


def collect(findings, binary, args, folder):
    """Returns the kinds, the most frequent first. Reduces the first findings of each signature."""
    groups = collections.defaultdict(list)
    for finding in findings:
        groups[finding.signature()].append(finding)
    found, until = {}, time.monotonic() + args.reduce_seconds
    for members in groups.values():
        for finding in members[:args.most]:
            case, failure = reduced(finding, Engine(binary, folder), args.seed, until - time.monotonic())
            name = named(case, failure[0], finding.mode)
            if name not in found:
                found[name] = Kind(name, finding, case, failure[1], 0, explain(case, failure[0], failure[1], finding.mode))
                where = args.out / f'{len(found):03}'
                write(where, case, References(), failure, finding.mode, args.seed, finding.number)
                print(f'{name}\n  {case.text()}\n  {failure[1][:300]}\n  {found[name].reason or "not explained"}', flush=True)
            found[name].count += 1
        # Findings that were not reduced are counted in the last kind of their signature.
        found[name].count += max(0, len(members) - args.most)
    return sorted(found.values(), key=lambda kind: -kind.count)


def reduced(finding, engine, seed, seconds):
    """Returns the smallest case of a finding that was found in the given seconds, and its failure."""
    single = finding.output and not finding.detail.startswith('together only')
    case = replace(finding.case, outputs=[finding.output]).pruned() if single else finding.case
    failure = finding.kind, finding.detail, finding.output
    if seconds <= 0:
        return case, failure
    try:
        smallest, smaller_failure = Reducer(engine, References(), seed, finding.mode, min(seconds, 60)).reduce(case, finding.kind)
    except Exception as problem:  # If a reduction fails, the finding keeps its case.
        return case, (finding.kind, f'{finding.detail} (not reduced: {problem})', finding.output)
    return (smallest, smaller_failure) if smaller_failure else (case, failure)


def named(case, kind, mode):
    """Returns the name of a kind: the contract, the sort of difference, the ops and the element types."""
    types = sorted({v.dtype.name for v in case.leaves().values()})
    ops = ' '.join(node.op for node in case.nodes)
    return f'{mode}, {kind}: {ops} [{" ".join(types)}]'


def write(folder, case, references, failure, mode, seed, number):
    """Writes a case: the model, its inputs, the expected outputs, and the commands that repeat it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        values = evaluate(references, case)
    except Exception:  # A refused case may have no expected values.
        values = dict(case.leaves())
    types = {name: value.dtype for name, value in values.items()}
    made, arrays, outputs = merged([case], [collections.defaultdict(lambda: np.dtype('float32'), types)])
    (folder / 'model.onnx').write_bytes(made.SerializeToString())
    command = ['eutectic', 'run', 'model.onnx', '--threads', '1'] + (['--fp', 'exact'] if mode == 'exact' else [])
    for name, value in arrays.items():
        np.save(folder / f'in_{name}.npy', value)
        command += ['--input', f'{name}=@in_{name}.npy']
    for _, name, given in outputs:
        if name in values:
            value = values[name]
            np.save(folder / f'expected_{given}.npy', value.astype(np.float32) if value.dtype == BF16 else value)
        command += ['--output', f'{given}=got_{given}.npy']
    (folder / 'about.txt').write_text('\n'.join([
        case.text(), f'{failure[0]}: {failure[1]}', ' '.join(command), f'python3 -m fuzzer repeat {number} --seed {seed} --mode {mode}', '']))


def table(found):
    """Returns the kinds as a table in Markdown."""
    lines = ['| times | kind | smallest graph | difference | explained by |', '|---|---|---|---|---|']
    clean = lambda text: ' '.join(text.split()).replace('|', '/')
    for kind in found:
        lines.append(f'| {kind.count} | {clean(kind.name)} | {clean(kind.case.text())[:400]} | {clean(kind.detail)[:200]} | {kind.reason or "**nothing**"} |')
    return '\n'.join(lines)
