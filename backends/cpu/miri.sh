#!/usr/bin/env bash
# Runs the portable kernels, what they are made of, and the threads under Miri, which reports undefined behaviour: reads and writes out of
# bounds or of memory that is not initialised, misaligned ones, data races, broken aliasing. Installs what it needs; takes half an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."

rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
rustup component add miri rust-src --toolchain nightly
# Isolation refuses the count of processors; crossbeam, below rayon, is right by the rules of tree borrows, turns numbers into pointers, and
# leaves blocks behind when a thread ends. The backends of tests are statics, whose threads still wait then.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks ${MIRIFLAGS:-}"
# Sweeps over the arguments of elementary functions would take hours.
cargo +nightly miri test -p eutectic-cpu --lib -- simd:: tile:: gemm:: runtime:: --skip elementary
cargo +nightly miri test -p eutectic-cpu --test portable
