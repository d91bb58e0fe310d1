#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment, and tests it there.
set -euo pipefail
cd "$(dirname "$0")/.."

# Third-party crates have the settings of the workspace's tests, so that builds in its folder are reused.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
environment=$CARGO_TARGET_DIR/python-environment
wheels=$CARGO_TARGET_DIR/wheels

cargo fmt --manifest-path python/Cargo.toml --check
python3 -m venv --clear "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' numpy pytest
rm -rf "$wheels"
"$environment/bin/maturin" build --manifest-path python/Cargo.toml --profile dev --locked --out "$wheels"
"$environment/bin/pip" install --quiet --disable-pip-version-check "$wheels"/eutectic-*.whl
"$environment/bin/pytest" -q python
