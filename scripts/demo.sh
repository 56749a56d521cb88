#!/usr/bin/env bash
# Sets up the machine, builds the program and trains digit classifiers: the whole way on a fresh clone.
#   scripts/demo.sh [arguments for `aeshna train digits`]
# AESHNA_SKIP_SETUP=1 leaves out the package installation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

set_up
build release --target aeshna_cli
run_echo build/release/aeshna train digits "$@"
if [ $# -eq 0 ]; then  # and the convolutional network, in a few words
  run_echo build/release/aeshna train digits --quiet --model cnn --checkpoint digits-cnn.safetensors --loss-svg loss-cnn.svg
fi
