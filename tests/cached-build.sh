# shellcheck shell=bash
# Sourced by scripts that build or fetch programs once, and print where they are. Such a script
# defines the function `build`, whose output goes to standard error, and calls `cached_build` as a
# plain command: in a condition or a substitution a failed step of `build` would be ignored.

# cached_build NAME [FILE...]: sets `folder` and has `build` fill it, unless it is complete. The
# folder lies under ~/.cache/albacore, named after NAME and a hash of the files, of the calling
# script and of this one, so that a change makes a new folder.
cached_build() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/albacore name=$1 key
    shift
    key=$(cat "$@" "$0" "${BASH_SOURCE[0]}" | sha256sum | cut -c1-12)
    folder=$cache/$name-$key
    mkdir -p "$cache"
    exec 9>"$folder.lock"
    flock 9 # tests run side by side and ask for the same folder
    if [ ! -f "$folder/complete" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        build >&2
        touch "$folder/complete"
    fi
}

# build_go_program NAME PACKAGE [LINKER_FLAGS]: builds a package of the Go module in the current
# directory into `folder`. The linker drops debug information, and producing it takes the compiler a
# tenth of its time.
build_go_program() {
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -gcflags=all=-dwarf=false \
        -ldflags "-s -w ${3:-}" -o "$folder/$1" "$2"
}
