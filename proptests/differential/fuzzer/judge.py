"""Judges the results of the engine: equal, equal within rounding, or a disagreement."""

from dataclasses import dataclass, field

import numpy as np

from .evaluate import Noise, evaluate
from .facts import DIVIDING, biases, observed, regrouped, weights
from .rounding import same_bits, spacing, wide
from .values import is_float

# The number of disturbed evaluations at first, and before a disagreement is reported.
FIRST, LATER = 4, 40
# An error may exceed the disturbances by this factor and, in addition, by this number of units.
FACTOR, UNITS = 4.0, 4.0


@dataclass
class Verdict:
    """A disagreement in one output of a case."""
    output: str
    kind: str
    detail: str
    at: tuple = ()
    expected: object = None
    got: object = None


@dataclass
class Expected:
    """The values of a case as the references compute them, and how far rounding moves each element."""
    case: object
    values: dict
    types: dict
    spread: dict = field(default_factory=dict)
    draws: int = 0


class Judge:
    """Compares the results of a case with the references under a contract."""

    def __init__(self, references, seed=0):
        self.references = references
        self.seed = seed

    def expect(self, case):
        """Evaluates a case without disturbances."""
        values = evaluate(self.references, case)
        return Expected(case, values, {name: value.dtype for name, value in values.items()})

    def noises(self, expected, contract, first, last):
        """Yields the disturbances of a series. The first uses the reference's native arithmetic."""
        for draw in range(first, last):
            rng = np.random.default_rng([self.seed, draw, 7])
            noise = Noise(rng, contract, strength=0.0 if draw == 0 else float(rng.choice([1, 1, 2])), native=draw in (0, 5))
            noise.other = draw == 2
            # These are set only in some draws, because other elements are random in each draw.
            noise.light = draw % 4 == 3
            noise.masks = contract != 'exact' and noise.light
            noise.parts = draw % 8 == 6
            noise.weights = weights(expected.case.nodes) if contract != 'exact' else {}
            noise.biases = biases(expected.case.nodes)
            noise.regrouped = regrouped(expected.case.nodes) if noise.masks else set()
            noise.types = expected.types
            noise.wide = contract != 'exact' and draw == 1
            noise.zeros = contract != 'exact' and draw == 4
            noise.cone = observed(expected.case.nodes, expected.types)
            yield noise

    def spread(self, expected, contract, draws):
        """Extends the spreads of a contract to a given number of disturbed evaluations."""
        key = contract
        state = expected.spread.setdefault(key, {'draws': 0, 'of': {name: np.zeros(v.shape) for name, v in expected.values.items()}})
        for noise in self.noises(expected, contract, state['draws'], draws):
            moved = evaluate(self.references, expected.case, noise)
            for name in expected.case.outputs:
                state['of'][name] = np.maximum(state['of'][name], distance(moved[name], expected.values[name]))
        state['draws'] = max(draws, state['draws'])
        return state['of']

    def compare(self, expected, results, contract):
        """Returns a Verdict for each output that disagrees."""
        for draws in (FIRST, LATER):
            spread = self.spread(expected, contract, draws)
            found = [self.output(expected, name, got, spread[name], contract) for name, got in results.items()]
            found = [verdict for verdict in found if verdict]
            if not found or all(verdict.kind == 'type' for verdict in found):
                break
        return found

    def output(self, expected, name, got, spread, contract):
        """Compares one output."""
        want = expected.values[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            return Verdict(name, 'type', f'{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}', (), want, got)
        divides = any(node.op in DIVIDING for node in expected.case.nodes)
        bad = ~agrees(got, want, spread, contract, divides)
        if not bad.any():
            return None
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        kind = difference(got[at], want[at])
        detail = f'{int(bad.sum())} of {bad.size} elements, first at {list(at)}: {show(got[at])}, not {show(want[at])}'
        return Verdict(name, kind, detail, at, want, got)


def distance(a, b):
    """Returns the distances of elements. A distance is infinite if rounding changes whether the element is NaN or infinite."""
    if a.shape != b.shape:
        return np.full(b.shape, np.inf)
    if not is_float(b.dtype):
        return np.where(a == b, 0.0, np.inf)
    x, y = wide(a), wide(b)
    with np.errstate(all='ignore'):
        apart = np.abs(x - y)
        apart = np.where(np.isnan(apart), np.inf, apart)
        return np.where((x == y) | (np.isnan(x) & np.isnan(y)), np.where(np.signbit(x) != np.signbit(y), 5e-324, 0.0) * (x == 0), apart)


def agrees(got, want, spread, contract, divides=False):
    """Returns which elements agree within rounding. `divides` marks where a quotient may have a pole."""
    if not is_float(want.dtype):
        return (got == want) | (spread > 0)
    x, y = wide(got), wide(want)
    with np.errstate(all='ignore'):
        units = UNITS * spacing(y, want.dtype)
        near = np.abs(x - y) <= FACTOR * spread + units
        # If rounding moves a divisor to zero, the quotient may be infinite.
        pole = divides & np.isinf(x) & (FACTOR * spread >= np.abs(y)) & (np.abs(y) > 2.0**-40)
        loose = pole | same_bits(got, want) | (x == y) | (np.isnan(x) & np.isnan(y)) | near | np.isinf(spread)
        if contract != 'exact':
            return loose
        return np.where(spread > 0, loose, same_bits(got, want))


def difference(got, want):
    """Returns the sort of a difference."""
    if not is_float(np.asarray(want).dtype):
        return 'integer' if np.asarray(want).dtype.kind != 'b' else 'truth'
    x, y = float(got), float(want)
    if np.isnan(y):
        return 'NaN lost'
    if np.isnan(x):
        return 'NaN made'
    if np.isinf(y):
        return 'infinity lost'
    if np.isinf(x):
        return 'infinity made'
    return 'zero sign' if x == y else 'value'


def show(value):
    """Returns a number as a text that can be read back."""
    value = np.asarray(value)
    if not is_float(value.dtype):
        return str(value)
    return repr(float(value)) if value.dtype.itemsize != 4 else str(np.float32(value))
