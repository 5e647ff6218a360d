#!/usr/bin/env bash
# Installs QEMU, fetches Debian's kernel for virtual machines and prints the folder of the kernel
# and its modules, which are unpacked, not installed. It lies under ~/.cache/albacore. Debian 12's
# 6.1: pins are lost when a cpuset widens there.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
folder=$cache/bignode-$(sha256sum "$0" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same kernel
if [ ! -f "$folder/complete" ]; then
    echo "installing QEMU, fetching a kernel for it (apt-get)" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    case $(uname -m) in
    x86_64) emulator=qemu-system-x86 kernel=linux-image-cloud-amd64 ;;
    *) echo "the big node is an x86_64 machine; this one is $(uname -m)" >&2 && exit 1 ;;
    esac
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends --no-upgrade "$emulator" iproute2 kmod mount >&2
    package=$(apt-cache depends "$kernel" | awk '/Depends: linux-image/ {print $2; exit}')
    (cd "$folder" && apt-get download -qq "$package" 2>&1 | grep -v unsandboxed >&2) || true
    dpkg-deb --fsys-tarfile "$folder"/linux-image-*.deb |
        tar -x -C "$folder" --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel'
    mv "$folder"/boot/vmlinuz-* "$folder/vmlinuz"
    mv "$folder"/lib/modules/*/kernel "$folder/modules"
    rm -rf "$folder"/boot "$folder"/lib "$folder"/*.deb
    touch "$folder/complete"
fi
echo "$folder"
