"""Engines that are right, that round in another way, or that have a planted fault."""

import numpy as np

from fuzzer.engine import Engine, Failure
from fuzzer.evaluate import Noise, evaluate
from fuzzer.facts import observed
from fuzzer.references import References


class Honest(Engine):
    """Computes cases with the references."""

    def __init__(self):
        super().__init__('no binary')
        self.references = References()

    def run(self, cases, types, options=()):
        """Returns the outputs of each case."""
        return [self.outputs(case, types_) for case, types_ in zip(cases, types)]

    def outputs(self, case, types):
        """Returns the outputs of one case."""
        values = evaluate(self.references, case)
        return {name: values[name] for name in case.outputs}


class Rounding(Honest):
    """Rounds like a plan of the default contract: results may be a unit off, unless a discontinuous op observes them."""

    def outputs(self, case, types):
        """Returns the outputs of one case."""
        noise = Noise(np.random.default_rng(11), 'reassoc')
        noise.types, noise.cone = types, observed(case.nodes, types)
        values = evaluate(self.references, case, noise)
        return {name: values[name] for name in case.outputs}


class Planted(Honest):
    """Computes one op wrongly. `fault` takes the node and its operands and returns the wrong result, or None for the right one."""

    def __init__(self, fault):
        super().__init__()
        right = self.references.run

        def run(node, env, *rest):
            args = [env[name] if name else None for name in node.inputs]
            with np.errstate(all='ignore'):
                wrong = fault(node, args)
            return right(node, env, *rest) if wrong is None else [wrong]
        self.references.run = run


def reciprocal_division(node, args):
    """Divides by a product with a rounded reciprocal."""
    if node.op == 'Div' and args[0].dtype == np.float32:
        return args[0] * (np.float32(1) / args[1])
    return None


def lost_guard(node, args):
    """Lets NaN pass through a Where whose condition is true."""
    if node.op == 'Where' and args[1].dtype == np.float32:
        return np.where(args[0] & ~np.isnan(args[2]), args[1], args[2])
    return None


class Refusing(Engine):
    """Fails on models with a Tan node. `names` determines whether the message names the case."""

    def __init__(self, names):
        super().__init__('no binary')
        self.names = names

    def _run(self, cases, types, options):
        self.runs += 1
        for at, case in enumerate(cases):
            if any(node.op == 'Tan' for node in case.nodes):
                raise Failure('refused', f'Tan at g{at}_v1: no' if self.names else 'something is wrong')
        return [{'seen': case} for case in cases]
