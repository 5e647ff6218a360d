#!/usr/bin/env bash
# Builds Kubernetes, etcd and helm from their Go modules and prints the folder with the programs.
# The first build takes 8 minutes of two cores; nothing but the Go module proxy is asked.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kubernetes=1.34.4 # the last minor whose kubelet takes cgroup v1 by itself
helm=3.19.5       # built on the same Kubernetes libraries
# shellcheck source=tests/cached-build.sh
source "$here/../cached-build.sh"
build() {
    PATH=$("$here/../go-env.sh")
    echo "building Kubernetes $kubernetes, etcd and helm $helm into $folder (minutes, once)"
    cd "$here"
    version=k8s.io/component-base/version
    flags="-X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${kubernetes:2:2} \
        -X $version.gitTreeState=clean"
    build_go_program kube-apiserver ./kubernetes "$flags"
    for program in etcd kube-controller-manager kube-scheduler kubelet kube-proxy; do
        ln "$folder/kube-apiserver" "$folder/$program"
    done
    build_go_program kubectl ./kubectl "$flags"
    build_go_program helm helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=v$helm"
}
cached_build kubernetes "$here"/{go.mod,go.sum} "$here"/*/main.go
echo "$folder"
