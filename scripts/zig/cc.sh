#!/usr/bin/env bash
# C compiler of static programs, for ALBACORE_ZIG_TARGET. Build scripts pass the target in Rust's
# format, which zig does not support. zig's checks of undefined behavior need a library that Rust
# does not link.
set -euo pipefail
arguments=()
for argument in "$@"; do
    [[ $argument == --target=* ]] || arguments+=("$argument")
done
exec "$ALBACORE_ZIG_PYTHON" -m ziglang cc -target "$ALBACORE_ZIG_TARGET" -fno-sanitize=undefined "${arguments[@]}"
