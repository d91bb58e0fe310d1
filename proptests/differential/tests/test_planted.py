"""Tests that the judge reports each planted fault. Where a contract leaves an element open, its neighbours are judged."""

import unittest

import numpy as np

from fuzzer.judge import Judge
from fuzzer.own import hidden
from fuzzer.references import References
from tests.planted import CASES, F32, INF, LEAST, NAN, attention, faults, one


class PlantedFaults(unittest.TestCase):
    """Faults in the results of fixed graphs."""

    def test_each_fault_is_reported(self):
        missed, planted = [], 0
        for name, entry in CASES.items():
            judge = Judge(References())
            expected = judge.expect(entry.case)
            right = {output: expected.values[output] for output in entry.case.outputs}
            for contract in ('reassoc', 'exact'):
                self.assertEqual([], judge.compare(expected, right, contract), name)
                for output, value in right.items():
                    for fault, at, wrong in faults(value, entry.signed and contract == 'exact'):
                        if at in entry.open or contract != 'exact' and at in entry.loose:
                            continue
                        planted += 1
                        if not judge.compare(expected, {**right, output: wrong}, contract):
                            missed.append((name, contract, output, fault, at))
        self.assertEqual([], missed)
        self.assertGreater(planted, 1000)


class Excuses(unittest.TestCase):
    """Results that a contract allows, and the same results where it does not allow them."""

    def verdicts(self, case, value, contract='reassoc'):
        """Returns the sorts of difference of a result."""
        judge = Judge(References())
        return [v.kind for v in judge.compare(judge.expect(case), {case.outputs[0]: np.asarray(value)}, contract)]

    # e⁻⁸⁷·² is a normal number, since the references give 0 for subnormal numbers on some processors.
    def test_a_light_weight_may_be_zero_by_default(self):
        case = one('Softmax', [np.array([0, -87.2, -86], F32)])
        right = Judge(References()).expect(case).values['y']
        for at, contract, allowed in ((1, 'reassoc', True), (1, 'exact', False), (2, 'reassoc', False)):
            zeroed = right.copy()
            zeroed[at] = 0
            self.assertEqual(allowed, not self.verdicts(case, zeroed, contract), (at, contract))

    def test_a_light_weight_that_a_comparison_reads_is_kept(self):
        case = one('Softmax', [np.array([0, -87.2], F32)])
        case.nodes.append(type(case.nodes[0])('Greater', ['y', 'zero'], ['z']))
        case.constants['zero'], case.outputs = F32.type(0), ['z']
        self.assertEqual(['truth'], self.verdicts(case, np.array([True, False])))

    def test_a_finite_number_hides_an_infinite_score_unless_exact(self):
        key = np.array([[INF, 1, 1], [1, 1, 1]], F32)
        case = attention(LEAST, key)
        uniform = np.full((2, 2), 0.5, F32)
        self.assertEqual(['NaN lost'], self.verdicts(case, uniform, 'exact'))

    def test_a_hidden_key_is_not_read(self):
        scores = np.array([[1, INF, NAN], [1, 2, 3]], F32)
        bias = np.array([[0, LEAST, -INF], [LEAST, LEAST, LEAST]], F32)
        wanted = np.array([[1, LEAST, -INF], [LEAST, LEAST, LEAST]], F32)
        np.testing.assert_array_equal(wanted, hidden(scores, bias))
        # A NaN in the bias itself is not hidden.
        self.assertTrue(np.isnan(hidden(np.array([1, 1], F32), np.array([NAN, 0], F32))[0]))

    def test_an_element_of_weight_0_is_not_read_by_resize(self):
        scales = np.array([1, 1, 2], F32)
        case = one('Resize', [np.array([[[1, INF, 3, 5]]], F32), None, scales], mode='linear', coordinate_transformation_mode='asymmetric')
        self.assertEqual([], self.verdicts(case, np.array([[[1, INF, INF, INF, 3, 4, 5, 5]]], F32)))
        for at in (0, 4, 7):
            wrong = np.array([[[1, INF, INF, INF, 3, 4, 5, 5]]], F32)
            wrong[0, 0, at] = NAN
            self.assertEqual(['NaN made'], self.verdicts(case, wrong))

    def test_padding_of_a_transposed_convolution_is_halved_and_rounded_down(self):
        # In ONNX, the result has 3·2 elements, and −1 elements are cut off: −1 before, 0 after. The kernel writes at 0,
        # 1, 3 and 4.
        case = one('ConvTranspose', [np.array([[[1, 10]]], F32), np.array([[[1, 2]]], F32)], strides=[3], auto_pad='SAME_UPPER')
        self.assertEqual([], self.verdicts(case, np.array([[[0, 1, 2, 0, 10, 20]]], F32), 'exact'))
        self.assertEqual(['value'], self.verdicts(case, np.array([[[1, 2, 0, 10, 20, 0]]], F32), 'exact'))


if __name__ == '__main__':
    unittest.main()
