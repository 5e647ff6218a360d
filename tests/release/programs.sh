#!/usr/bin/env bash
# Builds krew, which installs plugins of kubectl, and actionlint, which reads GitHub's workflows,
# from their Go modules, fetches Debian's Docker, and prints the folder with them. Docker is
# unpacked, not installed, so that no service starts.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cached-build.sh
source "$here/../cached-build.sh"
build() {
    PATH=$("$here/../go-env.sh")
    echo "building krew and actionlint into $folder (once)"
    export CGO_ENABLED=0 GOBIN=$folder
    for program in sigs.k8s.io/krew/cmd/krew@v0.5.0 github.com/rhysd/actionlint/cmd/actionlint@v1.7.7; do
        go install -trimpath "$program"
    done
    apt-get update -qq
    # It has no service; Docker needs the libraries.
    apt-get install -y -qq --no-install-recommends docker-compose libdevmapper1.02.1 libsystemd0
    (cd "$folder" && apt-get download -qq docker.io 2>&1 | grep -v unsandboxed) || true
    dpkg-deb -x "$folder"/docker.io_*.deb "$folder/unpacked"
    mv "$folder"/unpacked/usr/*bin/* "$folder"
    rm -rf "$folder/unpacked" "$folder"/*.deb
}
cached_build release
echo "$folder"
