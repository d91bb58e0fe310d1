#!/usr/bin/env bash
# Runs the portable kernels, what they are made of, and the threads under Miri, which reports undefined behaviour: reads and writes out of
# bounds or of memory that is not initialised, data races, broken aliasing. Installs what it needs; takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
rustup component add miri rust-src --toolchain nightly
# The isolation of Miri refuses `mmap` of files and the count of processors.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
cargo +nightly miri test -p eutectic-cpu --lib -- simd:: tile:: gemm:: kernels:: runtime::
cargo +nightly miri test -p eutectic-cpu --test portable
