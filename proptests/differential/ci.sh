#!/usr/bin/env bash
# Runs the differential fuzzer in at most two minutes: its tests, the list of ops without a generator, and random graphs of a
# fixed seed.
# Usage: ci.sh BINARY. The first run creates a virtual environment in target/.
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")"
environment=../../target/differential-python
if [ ! -x "$environment/bin/python3" ]; then
  python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet -r requirements.txt
fi
python="$environment/bin/python3"
"$python" -m unittest discover -s tests -t .
"$python" -m fuzzer ops --binary "$binary"
"$python" -m fuzzer run --binary "$binary" --count 600 --seconds 60 --reduce-seconds 20 --seed 1 --out ../../target/differential
