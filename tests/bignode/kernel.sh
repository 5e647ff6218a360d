#!/usr/bin/env bash
# Installs QEMU, fetches Debian's kernel for virtual machines and prints the folder of the kernel
# and its modules, which are unpacked, not installed. Debian 12's 6.1: pins are lost when a cpuset
# widens there.
set -euo pipefail
# shellcheck source=tests/cached-build.sh
source "$(dirname "$0")/../cached-build.sh"
build() {
    echo "installing QEMU, fetching a kernel for it (apt-get)"
    case $(uname -m) in
    x86_64) emulator=qemu-system-x86 kernel=linux-image-cloud-amd64 ;;
    *) echo "the big node is an x86_64 machine; this one is $(uname -m)" && exit 1 ;;
    esac
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends --no-upgrade "$emulator" iproute2 kmod mount
    package=$(apt-cache depends "$kernel" | awk '/Depends: linux-image/ {print $2; exit}')
    (cd "$folder" && apt-get download -qq "$package" 2>&1 | grep -v unsandboxed) || true
    dpkg-deb --fsys-tarfile "$folder"/linux-image-*.deb |
        tar -x -C "$folder" --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel'
    mv "$folder"/boot/vmlinuz-* "$folder/vmlinuz"
    mv "$folder"/lib/modules/*/kernel "$folder/modules"
    rm -rf "$folder"/boot "$folder"/lib "$folder"/*.deb
}
cached_build bignode
echo "$folder"
