"""Reduces failing graphs: fewer nodes and attributes, smaller dims, and simpler values."""

import time

import numpy as np

from .campaign import MODES, judged
from .evaluate import evaluate
from .graph import Case, Node
from .judge import Judge
from .references import References, Unable
from .values import is_float

# The maximal number of rounds of a reduction. Each is one run of the engine on all candidates.
ROUNDS = 40
# The maximal number of candidates in a round.
CANDIDATES = 24


class Reducer:
    """Reduces cases that fail in a mode with a sort of failure."""

    def __init__(self, engine, references, seed, mode, seconds=60):
        self.engine, self.references, self.seed = engine, references, seed
        self.contract, self.options = MODES[mode]
        self.kind = None
        self.seconds = seconds

    def failures(self, cases):
        """Returns the first failure of each case, or None. A case that cannot be evaluated does not fail."""
        judge, kept = Judge(self.references, self.seed), []
        for at, case in enumerate(cases):
            try:
                with np.errstate(all='ignore'):
                    kept.append((at, case, judge.expect(case)))
            except Exception:  # A candidate may be an invalid graph.
                continue
        results = self.engine.run([c for _, c, _ in kept], [e.types for _, _, e in kept], self.options) if kept else []
        found = [None] * len(cases)
        for (at, _, expected), result in zip(kept, results):
            try:
                wrong = judged(judge, expected, result, self.contract)
            except Unable:
                continue
            found[at] = wrong[0] if wrong else None
        self.references.forget()
        return found

    def reduce(self, case, kind):
        """Returns the smallest case found with the same failure, and the failure."""
        self.kind = group(kind)
        failure = self.failures([case])[0]
        if failure is None:
            return case, None
        until = time.monotonic() + self.seconds
        for _ in range(ROUNDS):
            if time.monotonic() > until:
                break
            step = self.better(case)
            if step is None:
                break
            case, failure = step
        return case, failure

    def better(self, case):
        """Returns the smallest case of the first candidates that still fail, with its failure, or None."""
        size = weight(case)
        tried = [candidate for candidate in smaller(case) if candidate.outputs and candidate.nodes and weight(candidate) < size]
        for at in range(0, len(tried), CANDIDATES):
            part = tried[at:at + CANDIDATES]
            found = [(candidate, failure) for candidate, failure in zip(part, self.failures(part)) if failure and group(failure[0]) == self.kind]
            if found:
                return min(found, key=lambda pair: weight(pair[0]))
        return None


def group(kind):
    """Returns the sort of failure that a reduction keeps: refusals, types, or wrong elements."""
    return kind if kind in ('refused', 'failed', 'crash', 'hang', 'type') else 'wrong'


def weight(case):
    """Returns the size of a case: nodes, then elements, then operands and attributes, then digits. Each step makes it smaller."""
    parts = sum(len(n.attrs) + len(n.reads()) for n in case.nodes)
    leaves = case.leaves().values()
    return len(case.nodes), sum(v.size for v in leaves), parts + sum(v.ndim for v in leaves) + len(case.outputs), sum(map(digits, leaves))


def digits(value):
    """Returns a measure of the length of an array's text."""
    if value.size > 64:
        return int((value != 0).sum()) * 8
    text = lambda x: 0 if x == 0 else 1 if x == 1 else 2 if x == np.rint(x) and abs(x) < 100 else len(repr(x))
    return sum(text(float(x)) for x in value.reshape(-1))


def smaller(case):
    """Yields smaller cases, the smallest first."""
    yield from fewer_outputs(case)
    yield from tails(case)
    yield from cuts(case)
    yield from skipped(case)
    yield from fewer_operands(case)
    yield from smaller_dims(case)
    yield from fewer_attributes(case)
    yield from simpler_values(case)


def copy(case, **changes):
    """Returns a case with some parts replaced, pruned."""
    parts = {'inputs': case.inputs, 'constants': case.constants, 'nodes': case.nodes, 'outputs': case.outputs}
    return Case(case.opset, **{**parts, **changes}).pruned()


def fewer_outputs(case):
    """Yields the case with some of its outputs, and with an operand of the last node as the output."""
    count = len(case.outputs)
    if count > 1:
        for part in (2, 4, 8, count):
            size = -(-count // part)
            for at in range(0, count, size) if part <= count else ():
                yield copy(case, outputs=case.outputs[at:at + size])
                yield copy(case, outputs=case.outputs[:at] + case.outputs[at + size:])
        return
    made = {name for node in case.nodes for name in node.outputs}
    for node in case.nodes:
        if case.outputs[0] in node.outputs:
            for name in node.reads():
                if name in made:
                    yield copy(case, outputs=[name])


def tails(case):
    """Yields only the last one to four nodes, with the values that they read as inputs or as constants."""
    if len(case.nodes) < 2 or len(case.outputs) > 1:
        return
    values = evaluate(References(), case)
    for count in range(1, min(5, len(case.nodes))):
        rest = case.nodes[-count:]
        given = {name: values[name] for node in case.nodes[:-count] for name in node.outputs if name}
        yield copy(case, nodes=rest, inputs={**case.inputs, **given})
        yield copy(case, nodes=rest, constants={**case.constants, **given})


def cuts(case):
    """Yields the case with a node replaced by its value as an input or a constant."""
    if len(case.nodes) < 2:
        return
    values = evaluate(References(), case)
    for node in reversed(case.nodes):
        if any(name in case.outputs for name in node.outputs):
            continue
        rest = [n for n in case.nodes if n is not node]
        given = {name: values[name] for name in node.outputs if name}
        yield copy(case, nodes=rest, inputs={**case.inputs, **given})
        yield copy(case, nodes=rest, constants={**case.constants, **given})


def skipped(case):
    """Yields the case without a node, whose readers read one of its operands instead."""
    for node in case.nodes:
        for source in node.reads():
            if len(node.outputs) == 1:
                yield copy(case, nodes=renamed(case.nodes, node, source), outputs=[source if o in node.outputs else o for o in case.outputs])


def renamed(nodes, left_out, source):
    """Returns the nodes without one, where its output is replaced by `source`."""
    swap = lambda names: [source if name in left_out.outputs else name for name in names]
    return [Node(n.op, swap(n.inputs), n.outputs, n.attrs, n.captures) for n in nodes if n is not left_out]


def fewer_operands(case):
    """Yields the case with two leaves of one shape and type merged, or without an optional operand."""
    for node in case.nodes:
        for at in range(len(node.inputs) - 1, 0, -1):
            if node.inputs[at]:
                inputs = node.inputs[:at] + ([''] if at < len(node.inputs) - 1 else []) + node.inputs[at + 1:]
                yield copy(case, nodes=[Node(n.op, inputs, n.outputs, n.attrs, n.captures) if n is node else n for n in case.nodes])


def smaller_dims(case):
    """Yields the case with a smaller extent in all leaves and in the lists that determine shapes."""
    for to in (1, 2):
        whole = case
        for extent in sorted({d for v in case.leaves().values() for d in v.shape if d > to}, reverse=True):
            whole = resized(whole, extent, to, False)
        yield whole
    extents = sorted({d for v in case.leaves().values() for d in v.shape if d > 1}, reverse=True)
    for extent in extents:
        for to in sorted({1, extent // 2, extent - 1} - {0, extent}):
            for keep_end in (False, True):
                yield resized(case, extent, to, keep_end)
    for name, value in case.leaves().items():
        for axis, extent in enumerate(value.shape):
            for to in sorted({1, extent // 2, extent - 1} - {0, extent} if extent > 1 else ()):
                for part in (value.take(range(to), axis), value.take(range(extent - to, extent), axis)):
                    yield replaced(case, name, part)
        if value.ndim and value.size == 1:
            yield replaced(case, name, value.reshape(value.shape[1:]))


def resized(case, extent, to, keep_end):
    """Returns the case with one extent replaced everywhere."""
    def cut(value):
        for axis, d in enumerate(value.shape):
            if d == extent:
                value = value.take(range(d - to, d) if keep_end else range(to), axis)
        # A list of extents contains this one.
        return np.where(value == extent, to, value).astype(value.dtype) if value.dtype == np.int64 and value.ndim <= 1 else value
    inputs = {k: cut(v) for k, v in case.inputs.items()}
    return copy(case, inputs=inputs, constants={k: cut(v) for k, v in case.constants.items()})


def replaced(case, name, value):
    """Returns the case with another value of a leaf."""
    if name in case.inputs:
        return copy(case, inputs={**case.inputs, name: value})
    return copy(case, constants={**case.constants, name: value})


def fewer_attributes(case):
    """Yields the case without an attribute."""
    for node in case.nodes:
        for name in node.attrs:
            attrs = {k: v for k, v in node.attrs.items() if k != name}
            yield copy(case, nodes=[Node(n.op, n.inputs, n.outputs, attrs, n.captures) if n is node else n for n in case.nodes])


def simpler_values(case):
    """Yields the case with elements replaced by 0, 1, or short decimals, all of them or half of them."""
    for name, value in case.leaves().items():
        if value.dtype == bool or value.size > 64:
            continue
        for simple in (np.zeros_like(value), np.ones_like(value)):
            if not (value == simple).all():
                yield replaced(case, name, simple)
                for part in halves(value.size) if value.size > 1 else ():
                    mixed = value.copy().reshape(-1)
                    if not (mixed[part] == simple.reshape(-1)[part]).all() and not (mixed[part] == 1).all():
                        mixed[part] = simple.reshape(-1)[part]
                        yield replaced(case, name, mixed.reshape(value.shape))
        if is_float(value.dtype):
            with np.errstate(all='ignore'):
                for digits in (0, 1, 2):
                    short = np.round(value.astype(np.float64), digits).astype(value.dtype)
                    if not ((short == value) | (short != short)).all():
                        yield replaced(case, name, short)


def halves(size):
    """Returns the halves of a range, and each position of a short range."""
    parts = [slice(0, size // 2), slice(size // 2, size)]
    return parts + [slice(i, i + 1) for i in range(size)] if size <= 8 else parts
