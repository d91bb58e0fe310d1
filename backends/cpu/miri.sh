#!/usr/bin/env bash
# Runs the tests of the portable kernels, their building blocks and the thread pool under Miri. Miri reports undefined behaviour: accesses out
# of bounds, to uninitialised memory or misaligned, data races, and violated aliasing. Installs nightly Rust and Miri; takes half an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."

rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
rustup component add miri rust-src --toolchain nightly
# With isolation, Miri refuses to report the number of processors. Crossbeam, which rayon uses, is correct only by the rules of tree borrows,
# turns integers into pointers, and leaks memory when a thread ends. The backends of tests are statics, so their threads outlive the tests.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks ${MIRIFLAGS:-}"
# Skips the tests that sweep over the arguments of elementary functions: they would take hours.
cargo +nightly miri test -p eutectic-cpu --lib -- simd:: tile:: gemm:: runtime:: --skip elementary
cargo +nightly miri test -p eutectic-cpu --test portable
