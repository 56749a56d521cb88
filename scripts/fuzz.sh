#!/usr/bin/env bash
# Fuzzes the readers of files with clang's libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer.
#   scripts/fuzz.sh [TARGET...] [--runs N | --seconds N]
#     TARGET       of tests/fuzz/target.h (onnx, gguf, ...); default: all, one after the other
#     --runs N     inputs of each target
#     --seconds N  of each target; default: 60
# What it finds interesting goes to build/fuzz/found/TARGET, inputs that fail to build/fuzz/failed/TARGET-...: put such a file into
# tests/fuzz/corpus/TARGET once the cause is fixed. Needs clang 17 or newer with libFuzzer (CONTRIBUTING.md).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/common.sh

targets=() limit=(-max_total_time=60)
while (($#)); do
  case $1 in
    --runs) limit=("-runs=${2:?--runs needs a number}") && shift ;;
    --seconds) limit=("-max_total_time=${2:?--seconds needs a number}") && shift ;;
    -*) echo "usage: scripts/fuzz.sh [TARGET...] [--runs N | --seconds N]" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
if ((${#targets[@]} == 0)); then
  for folder in tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
fi
for target in "${targets[@]}"; do
  [[ -d tests/fuzz/corpus/$target ]] || { echo "scripts/fuzz.sh: there is no target '$target' (tests/fuzz/corpus has them)" >&2; exit 2; }
done

build fuzz || exit 1
failed=0
for target in "${targets[@]}"; do
  found=build/fuzz/found/$target
  mkdir -p "$found" build/fuzz/failed
  seeds=("$found" "tests/fuzz/corpus/$target")
  # ONNX's own small models, if they are installed: every op.
  [[ $target == onnx && -d /usr/share/libonnx-testdata/data/node ]] && seeds+=(/usr/share/libonnx-testdata/data/node)
  echo "== $target"
  UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=1 "build/fuzz/tests/fuzz/fuzz_$target" "${limit[@]}" \
    -timeout=20 -rss_limit_mb=2048 -max_len=16384 -dict="tests/fuzz/dictionaries/$target.dict" -print_final_stats=1 \
    "-artifact_prefix=build/fuzz/failed/$target-" "${seeds[@]}" 2>&1 | grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse|RELOAD)|^\s+NEW_FUNC|^".*" # Uses: |ecommended dictionary'
  ((PIPESTATUS[0] == 0)) || { failed=1; echo "scripts/fuzz.sh: $target failed" >&2; }
done
exit $failed
