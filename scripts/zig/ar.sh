#!/usr/bin/env bash
# Archiver that complements cc.sh, for objects of any architecture.
set -euo pipefail
exec "$ALBACORE_ZIG_PYTHON" -m ziglang ar "$@"
