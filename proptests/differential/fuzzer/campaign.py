"""Runs batches of random graphs, each in its own process because references can crash, and judges them by two contracts."""

import collections
import os
import pickle
import re
import signal
import time
from dataclasses import dataclass, field

import numpy as np

from .engine import Engine, Failure
from .generate import OPSETS, graph
from .graph import union
from .judge import Judge
from .references import References, Unable

# The ways to run each case: the name, the contract for the results, and the options of `eutectic run`.
MODES = {
    'default': ('reassoc', ()),
    'exact': ('exact', ('--fp', 'exact')),
}
BATCH = 40


@dataclass
class Finding:
    """A disagreement or a failure of one graph in one mode."""
    number: int
    opset: int
    mode: str
    kind: str
    detail: str
    text: str
    case: object = None
    output: str = ''

    def signature(self):
        """Returns the last ops and the sort of difference, which findings of one kind probably share."""
        makers = {name: node for node in self.case.nodes for name in node.outputs}
        last = makers.get(self.output)
        if last is None:
            return f'{self.mode} {self.kind}: {re.sub(r"[0-9]+", "", self.detail)[:160]}'
        before = sorted({makers[name].op for name in last.reads() if name in makers})
        return f'{self.mode} {self.kind}: {last.op} of {" ".join(before)}'


@dataclass
class Report:
    """The outcome of a batch."""
    counts: collections.Counter = field(default_factory=collections.Counter)
    ops: collections.Counter = field(default_factory=collections.Counter)
    findings: list = field(default_factory=list)

    def add(self, other):
        """Adds the counts and findings of another report."""
        self.counts.update(other.counts)
        self.ops.update(other.ops)
        self.findings += other.findings


def opset_of(seed, batch):
    """Returns the op set of a batch."""
    return OPSETS[int(np.random.default_rng([seed, batch, 5]).integers(len(OPSETS)))]


def judge_batch(engine, references, seed, numbers, opset, modes):
    """Generates graphs, runs all of them together in each mode, and judges them."""
    report, judge, cases, expected = Report(), Judge(references, seed), [], []
    for number in numbers:
        case = graph(references, seed, number, opset)
        if case is None:
            report.counts['empty'] += 1
            continue
        cases.append((number, case))
        expected.append(judge.expect(case))
        report.ops.update(node.op for node in case.nodes)
    for mode in modes:
        contract, options = MODES[mode]
        results = engine.run([case for _, case in cases], [e.types for e in expected], options)
        for together, problem in engine.together:
            whole = union(together)
            report.findings.append(Finding(numbers[0], opset, mode, 'refused', f'together only: {problem[:500]}', whole.text(), whole))
        engine.together.clear()
        for at, ((number, case), wanted, result) in enumerate(zip(cases, expected, results)):
            try:
                findings = judged(judge, wanted, result, contract)
                alone = not findings or isinstance(result, Failure) or judged(judge, wanted, engine.run([case], [wanted.types], options)[0], contract)
            except Unable:
                report.counts['not judged'] += 1
                continue
            report.counts[f'{mode}: {"disagree" if findings else "agree"}'] += 1
            for kind, detail, output in findings:
                if alone:
                    report.findings.append(Finding(number, opset, mode, kind, detail, case.text(), case, output))
                    continue
                # The case is right when it runs alone, so the program of all cases together is wrong.
                whole = union([c for _, c in cases])
                report.findings.append(Finding(number, opset, mode, kind, f'together only: {detail}', whole.text(), whole, f'c{at}{output}'))
    references.forget()
    return report


def judged(judge, expected, result, contract):
    """Returns (kind, detail, output) for each error of a result."""
    if isinstance(result, Failure):
        return [(result.kind, str(result)[:600], '')]
    return [(v.kind, v.detail, v.output) for v in judge.compare(expected, result, contract)]


def in_child(work, timeout=900):
    """Runs a function in a forked process. Returns its result, or a text that describes how the process ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            signal.alarm(timeout)
            with os.fdopen(writing, 'wb') as out:
                pickle.dump(work(), out)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, 'rb') as source:
        data = source.read()
    _, status = os.waitpid(child, 0)
    if status:
        return f'signal {status & 127}' if status & 127 else 'an error of the fuzzer'
    return pickle.loads(data)


def run(binary, seed, first, count, modes=tuple(MODES), folder=None, seconds=None, tell=print, spool=None):
    """Runs the graphs first … first + count − 1, or as many as possible in the given seconds. Returns the Report.

    The report is written to the file `spool` after each batch.
    """
    total, start = Report(), time.monotonic()
    for at in range(first, first + count, BATCH):
        if seconds and time.monotonic() - start > seconds:
            break
        numbers = range(at, min(at + BATCH, first + count))
        opset = opset_of(seed, at // BATCH)
        total.add(batch_or_singles(binary, seed, numbers, opset, modes, folder, tell))
        done = numbers[-1] + 1 - first
        rate = done / (time.monotonic() - start)
        if spool:
            spool.write_bytes(pickle.dumps(total))
        tell(f'{done} graphs, {rate:.1f} a second, {len(total.findings)} findings')
    return total


def batch_or_singles(binary, seed, numbers, opset, modes, folder, tell):
    """Judges a batch. If the process crashes, splits the batch and judges the parts."""
    work = lambda chosen: lambda: judge_batch(Engine(binary, folder), References(), seed, chosen, opset, modes)
    report = in_child(work(numbers))
    if isinstance(report, Report):
        return report
    if len(numbers) == 1:
        tell(f'graph {numbers[0]}: the fuzzer or a reference stopped: {report}')
        lost = Report()
        lost.counts['reference crashed'] += 1
        return lost
    total = Report()
    half = len(numbers) // 2
    for part in (numbers[:half], numbers[half:]):
        total.add(batch_or_singles(binary, seed, part, opset, modes, folder, tell))
    return total
