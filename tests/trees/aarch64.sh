#!/usr/bin/env bash
# Tests the tree engine and its readers on aarch64: cross-compiled and run with qemu. Installs its
# requirements.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=aarch64-unknown-linux-gnu
if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    apt-get update -qq >&2
    apt-get install -y -qq qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross >&2
fi
rustup target list --installed | grep -qx "$target" || rustup target add "$target" >&2
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
exec "${CARGO:-cargo}" test --target "$target" --package albacore-formats --package albacore-simd --package albacore-trees
