#!/usr/bin/env bash
# Unpacks the backend node tests of the onnx 1.22.0 wheel into a folder: target/onnx-node-tests, if no other is given.
# Newer wheels come without them.
set -euo pipefail

version=1.22.0
folder=${1:-target/onnx-node-tests}
if [ -e "$folder/$version" ]; then
    echo "$folder is complete"
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 --dest "$scratch" "onnx==$version"
python3 - "$scratch"/onnx-*.whl "$scratch/node" <<'PY'
import pathlib, sys, zipfile

wheel, folder = sys.argv[1:]
start = "onnx/backend/test/data/node/"
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        if name.startswith(start) and not name.endswith("/"):
            path = pathlib.Path(folder, name.removeprefix(start))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
PY
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
mv "$scratch/node" "$folder"
touch "$folder/$version"
echo "$(find "$folder" -mindepth 1 -maxdepth 1 -type d | wc -l) node tests in $folder"
