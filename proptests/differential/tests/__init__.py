"""Tests of the fuzzer. They do not need the engine."""
