#!/usr/bin/env bash
# The archiver beside cc.sh, for the objects of any architecture.
set -euo pipefail
exec "$ALBACORE_ZIG_PYTHON" -m ziglang ar "$@"
