#!/usr/bin/env bash
# Builds Kubernetes, etcd and helm from their Go modules and prints the folder with the programs.
# It lies under ~/.cache/albacore, named after the modules' versions and the source here, so that a
# change makes a new one. The first build takes 8 minutes of two cores; nothing but the Go module
# proxy is asked.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kubernetes=1.34.4 # the last minor whose kubelet takes cgroup v1 by itself
helm=3.19.5       # built on the same Kubernetes libraries
cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore
mkdir -p "$cache"
key=$(cat "$here/go.mod" "$here/go.sum" "$here"/*/main.go "$0" | sha256sum | cut -c1-12)
folder=$cache/kubernetes-$key
exec 9>"$folder.lock"
flock 9 # tests run side by side and ask for the same programs
if [ ! -f "$folder/complete" ]; then
    PATH=$("$here/../go-env.sh")
    echo "building Kubernetes $kubernetes, etcd and helm $helm into $folder (minutes, once)" >&2
    rm -rf "$folder"
    mkdir -p "$folder"
    cd "$here"
    export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
    version=k8s.io/component-base/version
    flags="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${kubernetes:2:2} \
        -X $version.gitTreeState=clean"
    go build -mod=readonly -trimpath -o "$folder/kube-apiserver" -ldflags "$flags" ./kubernetes >&2
    for program in etcd kube-controller-manager kube-scheduler kubelet kube-proxy; do
        ln "$folder/kube-apiserver" "$folder/$program"
    done
    go build -mod=readonly -trimpath -o "$folder/kubectl" -ldflags "$flags" ./kubectl >&2
    go build -mod=readonly -trimpath -o "$folder/helm" \
        -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$helm" helm.sh/helm/v3/cmd/helm >&2
    touch "$folder/complete"
fi
echo "$folder"
