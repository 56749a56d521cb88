#!/usr/bin/env bash
# Runs every benchmark of bench/ on this machine: needs a Vulkan driver, no network, and installs nothing.
#   scripts/bench.sh [--bin DIR] [--out DIR] [NAME...]
#     --bin DIR  programs built elsewhere (DIR/bench_*); without it they are built here (preset bench)
#     --out DIR  where results go (default: build/bench-results)
#     NAME...    only these: bench_NAME and bench/NAME.py
#
# A program bench_NAME is called with `--json FILE`; bench/NAME.py does the same work with PyTorch and is called the same way
# where python3 has torch, right after it. DIR gets NAME.json, NAME.txt (what was printed), NAME.torch.json,
# NAME.torch.txt and machine.txt; ops.md and ops.svg compare the ops.
set -euo pipefail
cd_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

bin='' out=build/bench-results
names=()
absolute() { [[ $1 == /* ]] && echo "$1" || echo "$cd_from/$1"; }
while (($#)); do
  case $1 in
    --bin | --out)
      [[ $# -ge 2 ]] || { echo "scripts/bench.sh: $1 needs a folder" >&2; exit 2; }
      if [[ $1 == --bin ]]; then bin=$(absolute "$2"); else out=$(absolute "$2"); fi
      shift 2
      ;;
    -*) echo "usage: scripts/bench.sh [--bin DIR] [--out DIR] [NAME...]" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done

if [[ -z $bin ]]; then
  build bench
  bin=build/bench/bench
fi
if ((${#names[@]} == 0)); then
  for program in "$bin"/bench_*; do
    [[ -x $program ]] && names+=("${program##*/bench_}")
  done
fi
((${#names[@]})) || { echo "scripts/bench.sh: no programs bench_* in $bin" >&2; exit 1; }

mkdir -p "$out"
{
  date -u '+date: %Y-%m-%d %H:%M UTC'
  printf 'commit: %s\n' "$(git describe --always --dirty 2>/dev/null || echo unknown)"
  printf 'system: %s\n' "$(uname -srm)"
  printf 'cpu: %s, %s threads\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)" "$jobs"
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null | sed 's/^/gpu: /'
  fi
  if command -v python3 >/dev/null; then
    python3 -c 'import torch; print("torch:", torch.__version__, "cuda:", torch.version.cuda, "on", torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU")' 2>/dev/null || echo "torch: none"
  fi
} | tee "$out/machine.txt"
torch=0
grep -q '^torch: none' "$out/machine.txt" || { command -v python3 >/dev/null && torch=1; }

failed=()
for name in "${names[@]}"; do
  echo "== $name"
  "$bin/bench_$name" --json "$out/$name.json" 2>&1 | tee "$out/$name.txt" || failed+=("$name")
  if ((torch)) && [[ -e bench/$name.py ]]; then
    echo "== $name (PyTorch)"
    python3 "bench/$name.py" --json "$out/$name.torch.json" 2>&1 | tee "$out/$name.torch.txt" || failed+=("$name.py")
  fi
done
if [[ -e $out/ops.json && -e $out/ops.torch.json ]]; then
  python3 bench/ops.py --report "$out/ops.json" "$out/ops.torch.json" --markdown "$out/ops.md" --svg "$out/ops.svg" ||
    failed+=("ops.py --report")
fi
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
echo "results: $out"
