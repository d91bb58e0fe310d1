"""Tests that the judge tells rounding from faults: an honest engine has no finding, a planted fault is found and reduced."""

import unittest

import numpy as np

from fuzzer import campaign
from fuzzer.generate import graph
from fuzzer.graph import Case, Node
from fuzzer.judge import Judge
from fuzzer.reduce import Reducer
from fuzzer.references import References
from tests.stubs import Honest, Planted, Refusing, Rounding, lost_guard, reciprocal_division


def findings(engine, numbers, opset=23, modes=tuple(campaign.MODES)):
    """Returns the findings of a batch."""
    return campaign.judge_batch(engine, References(), 3, numbers, opset, modes).findings


class Judging(unittest.TestCase):
    """Verdicts on engines whose faults are known."""

    def test_an_honest_engine_has_no_finding(self):
        self.assertEqual([], [f.text for opset in (12, 18, 23) for f in findings(Honest(), range(25), opset)])

    def test_rounding_is_no_finding_under_the_default_contract(self):
        self.assertEqual([], [(f.text, f.detail) for f in findings(Rounding(), range(50), modes=('default',))])

    def test_a_planted_division_is_found_and_reduced(self):
        engine = Planted(reciprocal_division)
        found = []
        for first in range(0, 400, 20):
            if found:
                break
            found = [f for f in findings(engine, range(first, first + 20), modes=('default',)) if f.kind in ('value', 'integer')]
        self.assertTrue(found, 'no graph shows the fault')
        case, failure = Reducer(engine, References(), 3, 'default').reduce(found[0].case, found[0].kind)
        self.assertIn('Div', [node.op for node in case.nodes])
        self.assertLessEqual(len(case.nodes), 3, case.text())
        self.assertTrue(all(value.size <= 2 for name, value in case.leaves().items()), case.text())
        self.assertIsNotNone(failure)

    def test_a_lost_guard_against_nan_is_found(self):
        x = np.array([1.0, np.nan], np.float32)
        nodes = [Node('IsNaN', ['x'], ['n']), Node('Where', ['n', 'zero', 'x'], ['y'])]
        case = Case(23, {'x': x}, {'zero': np.float32(0.0)}, nodes, ['y'])
        judge = Judge(References())
        expected = judge.expect(case)
        wrong = Planted(lost_guard).run([case], [expected.types])[0]
        for contract in ('reassoc', 'exact'):
            self.assertEqual(['NaN made'], [v.kind for v in judge.compare(expected, wrong, contract)])

    def test_exact_bits_are_asked_for_under_the_exact_contract(self):
        x = np.array([1.0, 3.0, 7.0], np.float32)
        case = Case(23, {'x': x}, {'c': np.float32(3.0)}, [Node('Div', ['x', 'c'], ['y'])], ['y'])
        judge = Judge(References())
        expected = judge.expect(case)
        near = {'y': np.nextafter(expected.values['y'], np.float32(9))}
        self.assertFalse(judge.compare(expected, near, 'reassoc'))
        self.assertTrue(judge.compare(expected, near, 'exact'))

    def test_a_step_that_rounding_cannot_make_is_a_finding(self):
        x = np.array([49.0], np.float32)
        nodes = [Node('Div', ['x', 'c'], ['q']), Node('Floor', ['q'], ['y'])]
        judge = Judge(References())
        expected = judge.expect(Case(23, {'x': x}, {'c': np.float32(49.0)}, nodes, ['y']))
        self.assertTrue(judge.compare(expected, {'y': np.array([0.0], np.float32)}, 'reassoc'))

    def test_a_step_behind_a_function_is_open(self):
        nodes = [Node('Exp', ['x'], ['q']), Node('Log', ['q'], ['l']), Node('Floor', ['l'], ['y'])]
        judge = Judge(References())
        expected = judge.expect(Case(23, {'x': np.array([3.0], np.float32)}, {}, nodes, ['y']))
        other = {'y': np.array([5.0 - expected.values['y'][0]], np.float32)}
        self.assertFalse(judge.compare(expected, other, 'reassoc'))


class Splitting(unittest.TestCase):
    """Merged models are split if a case fails."""

    def test_the_others_of_a_batch_are_run(self):
        x = np.ones(2, np.float32)
        make = lambda op: Case(23, {'v0': x}, {}, [Node(op, ['v0'], ['v1'])], ['v1'])
        cases = [make('Tan' if i in (2, 5) else 'Abs') for i in range(9)]
        for names in (True, False):
            engine = Refusing(names)
            results = engine.run(cases, [{}] * 9)
            self.assertEqual([2, 5], [i for i, r in enumerate(results) if not isinstance(r, dict)])
            self.assertTrue(all(results[i]['seen'] is cases[i] for i in range(9) if i not in (2, 5)))


class Generating(unittest.TestCase):
    """The seed and the number determine a graph."""

    def test_a_number_names_a_graph(self):
        first, second = (graph(References(), 1, 5, 23) for _ in range(2))
        self.assertEqual(first.text(), second.text())


if __name__ == '__main__':
    unittest.main()
