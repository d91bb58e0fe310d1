"""Tests of the fuzzer itself; none needs the engine."""
