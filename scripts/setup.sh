#!/usr/bin/env bash
# Installs missing system requirements of the named parts: packages of Debian (apt-get), components
# and targets of Rust (rustup). Without names: of all parts. Does nothing if everything is
# installed.
set -euo pipefail
missing=()
targets=()
need() { # PROGRAM PACKAGE...: the packages are installed if the program is missing
    local program=$1
    shift
    command -v "$program" >/dev/null || missing+=("$@")
}
component() { # NAME COMMAND: a component of the toolchain, and the command of cargo that it brings
    cargo "$2" --version >/dev/null 2>&1 || rustup component add "$1"
}
command -v cargo >/dev/null || {
    echo "cargo is missing: install Rust 1.90 or newer (https://rustup.rs)" >&2
    exit 1
}
[ $# -gt 0 ] || set -- build lint python musl fuzz browser
for part in "$@"; do
    case $part in
    build) need cc gcc libc6-dev ;; # the linker, and C code in dependencies
    lint)
        need git git
        component rustfmt fmt
        component clippy clippy
        ;;
    python) python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv) ;;
    musl) # static programs for this machine
        targets+=("$(uname -m)-unknown-linux-musl")
        ;;
    release) # static programs for both architectures
        targets+=({x86_64,aarch64}-unknown-linux-musl)
        ;;
    fuzz) need c++ g++ ;; # libFuzzer
    browser) need chromium chromium ;; # a test opens reports
    *)
        echo "usage: setup.sh [build | lint | python | musl | release | fuzz | browser]..." >&2
        exit 64
        ;;
    esac
done
for target in "${targets[@]}"; do
    [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || rustup target add "$target"
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "installing ${missing[*]} (apt-get)" >&2
    apt-get update -qq >&2
    apt-get install -y -qq "${missing[@]}" >&2
fi
