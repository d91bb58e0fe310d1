"""Tests rounding, special values, and each generator."""

import unittest

import ml_dtypes
import numpy as np

from fuzzer.builder import Builder, Skip
from fuzzer.facts import ROUNDING
from fuzzer.generate import SINCE
from fuzzer.references import References, Unable
from fuzzer.rounding import keys, narrow, same_bits, spacing, stepped
from fuzzer.specs import PATTERNS, STEPS
from fuzzer.values import BF16, F16, F32, F64, specials


class Numbers(unittest.TestCase):
    """Arithmetic on the bits of numbers."""

    def test_bfloat16_is_rounded_once(self):
        # Without the bits that float32 drops, this is half way between two bfloat16 numbers.
        x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8])
        self.assertEqual([1 + 2.0**-7, 1.0, 1.0], narrow(x, BF16).astype(float).tolist())

    def test_spacing_is_numpys(self):
        for dtype in (F16, F32, F64):
            values = np.array([1.0, 1.5, 3.0, 1000.0, 1e-3, 0.0], dtype)
            self.assertEqual(np.spacing(values).tolist(), spacing(values.astype(float), dtype).astype(dtype).tolist())

    def test_keys_are_in_order(self):
        for dtype in (F16, BF16, F32, F64):
            info = ml_dtypes.finfo(dtype)
            row = np.array([-np.inf, float(info.min), -1, -float(info.smallest_subnormal), -0.0, 0.0, float(info.tiny), 1, np.inf]).astype(dtype)
            self.assertEqual(sorted(keys(row).tolist()), keys(row).tolist(), dtype)
            self.assertEqual(len(row), len(set(keys(row).tolist())), dtype)
            self.assertEqual(keys(row)[3:6].tolist(), [-2, -1, 0])

    def test_nan_equals_nan_and_zeros_differ(self):
        a, b = np.array([np.nan, 0.0], F32), np.array([-np.nan, -0.0], F32)
        self.assertEqual([True, False], same_bits(a, b).tolist())

    def test_a_step_keeps_zero_and_infinity(self):
        x = specials(F32).astype(F32)
        moved = stepped(x, np.ones(x.shape))
        still = ~np.isfinite(x) | (x == 0) | (x == np.finfo(F32).max)
        self.assertTrue(same_bits(moved, x)[still].all())
        self.assertFalse(same_bits(moved, x)[~still].any())


class Generators(unittest.TestCase):
    """Each op and each pattern can be generated and evaluated."""

    def test_each_makes_a_graph(self):
        references, idle = References(), []
        for name, step in {**STEPS, **PATTERNS}.items():
            opset = 9 if name in ('Upsample', 'Scatter') else max(SINCE.get(name, 1), 23)
            if not any(self.makes(step, references, opset, seed) for seed in range(40)):
                idle.append(name)
            references.forget()
        self.assertEqual([], idle)

    @staticmethod
    def makes(step, references, opset, seed):
        """Returns whether a step adds a node."""
        b = Builder(np.random.default_rng(seed), references, opset, 'mixed')
        try:
            step(b)
        except (Skip, Unable):
            return False
        return bool(b.case.nodes)

    def test_our_own_references_agree_with_onnx_runtime_on_ordinary_numbers(self):
        references = References()
        # ONNX Runtime subtracts squares of means in norms, which loses digits.
        for op in ('GroupNormalization', 'InstanceNormalization', 'MeanVarianceNormalization', 'LRN', 'EyeLike', 'TensorScatter', 'GlobalMaxPool',
                   'GlobalAveragePool', 'OneHot', 'ArgMax', 'Hardmax', 'QuantizeLinear', 'DequantizeLinear'):
            compared = sum(self.agrees(op, references, seed) for seed in range(12))
            self.assertGreater(compared, 2, op)

    def agrees(self, op, references, seed):
        """Compares a node with ONNX Runtime. Returns False if this is not possible."""
        b = Builder(np.random.default_rng(seed), references, 24, 'tame')
        try:
            STEPS[op](b)
            node = b.case.nodes[-1]
            theirs = references._ask('ort', node, {name: b[name] for name in node.reads()}, 24)[0]
        except Exception:  # ONNX Runtime does not support all types.
            return False
        ours = b[node.outputs[0]]
        self.assertEqual(theirs.shape, ours.shape, op)
        np.testing.assert_allclose(theirs.astype(float), ours.astype(float), rtol=1e-2, atol=1e-2, err_msg=op)
        return True

    def test_each_says_how_it_rounds(self):
        self.assertEqual([], [op for op in STEPS if op not in ROUNDING])


if __name__ == '__main__':
    unittest.main()
