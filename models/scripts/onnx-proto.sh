#!/usr/bin/env bash
# Generates models/onnx/src/proto.rs again, in a scratch crate under target/. Run it if ONNX adds fields that the reader needs.
set -euo pipefail
cd "$(dirname "$0")/../.."

onnx_version=1.23.2
scratch=target/onnx-proto
file=models/onnx/src/proto.rs
mkdir -p "$scratch/src"

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet grpcio-tools
"$scratch/venv/bin/pip" download --quiet --no-deps --dest "$scratch/wheel" "onnx==$onnx_version"
unzip -q -o "$scratch"/wheel/onnx-"$onnx_version"-*.whl onnx/onnx.proto -d "$scratch"

cat > "$scratch/protoc" <<EOF
#!/bin/sh
exec "$PWD/$scratch/venv/bin/python" -m grpc_tools.protoc "\$@"
EOF
chmod +x "$scratch/protoc"

cat > "$scratch/Cargo.toml" <<'EOF'
[package]
name = "onnx-proto"
edition = "2024"

[dependencies]
prost-build = "0.14"

[workspace]
EOF
# `bytes`: tensors are slices of the mapped file.
cat > "$scratch/src/main.rs" <<'EOF'
fn main() {
    let mut config = prost_build::Config::new();
    config.bytes(["."]).disable_comments(["."]).out_dir(".");
    config.compile_protos(&["onnx/onnx.proto"], &["onnx"]).expect("onnx.proto compiles");
}
EOF
(cd "$scratch" && PROTOC="$PWD/protoc" cargo run --quiet)

{ sed '/^\/\/ This file is @generated/,$d' "$file"; cat "$scratch/onnx.rs"; } > "$scratch/proto.rs"
mv "$scratch/proto.rs" "$file"
rustfmt --edition 2024 "$file"
