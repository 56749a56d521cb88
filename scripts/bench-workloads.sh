#!/usr/bin/env bash
# Measures the workloads of docs/benchmark.md with Aeshna and with PyTorch, in fresh processes that take turns, and judges the results.
#   scripts/bench-workloads.sh [options] [WORKLOAD...]      (default: smollm2 smolvla unet resnet50 whisper)
#     --bin DIR        the program built elsewhere (DIR/aeshna); without it, it is built here (preset release)
#     --out DIR        where results go (default: build/bench-workloads)
#     --scratch DIR    where data, tensors and caches go: some GB (default: OUT/scratch)
#     --small          the small configurations: a test of the whole
#     --mode M         only this mode of PyTorch: eager, compile or graph (may be repeated)
#     --processes N    of each engine (default: 3)
#     --stop-after S   start no step once S seconds have passed; the next call goes on there
#     --keep           keep data, tensors and caches
#
# OUT/WORKLOAD gets aeshna-N.json and pytorch-N.json (N: the process), reference.json (PyTorch in float64), gates/*.json, and
# tensors.sha256, which names what was judged; OUT/report the tables. Process 1 finds all caches empty, also the driver's.
# A file that is there is not made again: a call that was broken off is repeated as it was. Delete a file to measure it anew.
# PYTHON is the interpreter that has torch (default: python3); without torch only our side runs. AESHNA_DEVICE chooses the device.
# Exit status: 0, 1 if a step or a gate of ours failed (listed at the end), 2 for wrong arguments, 4 if --stop-after left steps undone.
set -uo pipefail
cd_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/common.sh

usage() { echo "scripts/bench-workloads.sh: $1; see the head of the script" >&2; exit 2; }
absolute() { [[ $1 == /* ]] && echo "$1" || echo "$cd_from/$1"; }

bin='' out=build/bench-workloads scratch='' small=() suffix='' processes=3 stop_after=0 keep=0
workloads=() modes=()
while (($#)); do
  case $1 in
    --bin | --out | --scratch | --mode | --processes | --stop-after)
      [[ $# -ge 2 ]] || usage "$1 needs a value"
      case $1 in
        --bin) bin=$(absolute "$2") ;;
        --out) out=$(absolute "$2") ;;
        --scratch) scratch=$(absolute "$2") ;;
        --mode) modes+=(--mode "$2") ;;
        *) [[ $2 =~ ^[1-9][0-9]*$ ]] || usage "$1 needs a number" ;;&
        --processes) processes=$2 ;;
        --stop-after) stop_after=$2 ;;
      esac
      shift
      ;;
    --small) small=(--small) suffix=-small ;;
    --keep) keep=1 ;;
    smollm2 | smolvla | unet | resnet50 | whisper) workloads+=("$1") ;;
    *) usage "what is '$1'?" ;;
  esac
  shift
done
((${#workloads[@]})) || workloads=(smollm2 smolvla unet resnet50 whisper)

if [[ -z $bin ]]; then
  build release --target aeshna || exit 1
  bin=build/release
fi
aeshna=$bin/aeshna
[[ -x $aeshna ]] || { echo "scripts/bench-workloads.sh: no program $aeshna" >&2; exit 1; }
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
scratch=${scratch:-$out/scratch}
mkdir -p "$scratch" && scratch=$(cd "$scratch" && pwd) || exit 1

python=${PYTHON:-python3}
torch=1
if ! why=$("$python" -c 'import torch' 2>&1); then
  torch=0
  echo "no PyTorch in $python (${why##*$'\n'}): only Aeshna is measured, and nothing is judged"
fi

failed=()
undone=0
say() { printf '[%5d s] %s\n' "$SECONDS" "$*"; }
fail() { failed+=("$1"); say "$1"; }

# step TITLE FILE COMMAND...: makes FILE, unless it is there; COMMAND writes FILE.part. It may fail and leave a complete file: cells
# with errors, gates that were not passed.
step() {
  local title=$1 file=$2 began=$SECONDS log status
  shift 2
  log=$work/log/$(basename "$file").txt
  if [[ -s $file ]]; then
    [[ ! -e $log.failed ]] || fail "$title: failed in an earlier call"
    return 0
  fi
  if ((stop_after && SECONDS >= stop_after)); then
    undone=$((undone + 1))
    say "$title: not begun"
    return 1
  fi
  rm -f "$file.part" "$log.failed"
  "$@" >"$log" 2>&1
  status=$?
  if [[ -s $file.part ]] && { ((status == 0)) || [[ $(tail -c 2 "$file.part") == *'}'* ]]; }; then
    mv "$file.part" "$file"
  elif ((status == 0)); then
    status='0, but no file'
  fi
  if [[ $status == 0 ]]; then
    say "$title: $((SECONDS - began)) s"
  else
    fail "$title: failed after $((SECONDS - began)) s (status $status)"
    touch "$log.failed"
    tail -n 12 "$log" | sed 's/^/    /'
  fi
  [[ -s $file ]]
}

# The programs with caches of their own, and not for ever. `ours` gets the driver's too: a folder, or none at all for cold
# compilations, since that folder would be warm for the second contract of a process.
ours() {
  env AESHNA_CACHE_DIR="$work/cache/aeshna" __GL_SHADER_DISK_CACHE_PATH="$work/cache/driver" MESA_SHADER_CACHE_DIR="$work/cache/driver" \
    timeout -k 10 1800 "$aeshna" "$@"
}
ours_cold() { __GL_SHADER_DISK_CACHE=0 MESA_SHADER_CACHE_DISABLE=true ours "$@"; }
theirs() {
  env TORCHINDUCTOR_CACHE_DIR="$work/cache/pytorch" timeout -k 10 1800 "$python" bench/pytorch/reference.py "$@"
}

make_data() { [[ -s $data ]] || step "$name: data" "$data" ours bench data "$workload" "${small[@]}" --out "$data.part"; }

# process ENGINE N: one fresh process of an engine
process() {
  local engine=$1 n=$2 file=$results/$1-$2.json cache=warm ours=ours options=()
  [[ -s $file ]] || make_data || return 1
  if ((n == 1)); then
    cache=cold ours=ours_cold
    [[ -s $file ]] || rm -rf "$work/cache/$engine"
    ((torch)) && options=(--tensors "$work/tensors")
  fi
  local arguments=("$workload" "${small[@]}" --data "$data" --json "$file.part" --process "$n" --cache "$cache" "${options[@]}")
  if [[ $engine == aeshna ]]; then
    step "$name: aeshna process $n ($cache)" "$file" "$ours" bench run "${arguments[@]}"
  else
    step "$name: pytorch process $n ($cache)" "$file" theirs "${arguments[@]}" "${modes[@]}"
  fi
}

# judge ENGINE-PHASE-CONTRACT[-MODE].safetensors REFERENCE [BASELINE]
judge() {
  local title baseline=() gate=(ours bench gate)
  title=$(basename "$1" .safetensors)
  [[ -n ${3:-} ]] && baseline=(--baseline "$3")
  [[ $title == pytorch-* ]] && gate=(judged "${gate[@]}") # the report says so; no failure of the run
  step "$name: gate $title" "$results/gates/$title.json" "${gate[@]}" --reference "$2" --candidate "$1" "${baseline[@]}" \
    --json "$results/gates/$title.json.part"
}
judged() {
  "$@"
  (($? <= 1))
}

judge_all() {
  local phase contract reference baseline candidate before=$undone
  { [[ -s $results/reference.json ]] || make_data; } && step "$name: pytorch in float64" "$results/reference.json" theirs "$workload" "${small[@]}" --data "$data" \
    --json "$results/reference.json.part" --float64 --tensors "$work/tensors"
  for phase in full minimal train; do
    reference=$work/tensors/pytorch-$phase-float64.safetensors
    [[ -s $reference ]] || continue
    for contract in strict accelerated; do
      baseline=''
      for candidate in "$work/tensors/pytorch-$phase-$contract"*.safetensors; do
        [[ -s $candidate ]] || continue
        judge "$candidate" "$reference"
        baseline=$candidate
      done
      for candidate in "$work/tensors/aeshna-$phase-$contract"*.safetensors; do
        [[ -s $candidate ]] || continue
        judge "$candidate" "$reference" "$baseline"
      done
    done
  done
  # Only when both engines' tensors were there.
  if ((undone == before)) && [[ ! -e $results/tensors.sha256 && -s $results/aeshna-1.json && -s $results/pytorch-1.json && -s $results/reference.json ]]; then
    (cd "$work/tensors" && sha256sum -- *.safetensors) >"$results/tensors.sha256"
  fi
}

for workload in "${workloads[@]}"; do
  name=$workload$suffix results=$out/$workload$suffix work=$scratch/$workload$suffix data=$scratch/$workload$suffix/data.safetensors
  mkdir -p "$results/gates" "$work/log" "$work/cache/driver"
  before=$((${#failed[@]} + undone))
  if ((torch)) && [[ ! -e $results/tensors.sha256 ]]; then
    # Of an earlier call whose tensors are gone: what made them runs again.
    for engine in aeshna pytorch; do
      compgen -G "$work/tensors/$engine-*-strict*.safetensors" >/dev/null || rm -f "$results/$engine-1.json"
    done
    compgen -G "$work/tensors/pytorch-*-float64.safetensors" >/dev/null || rm -f "$results/reference.json"
  fi
  for ((n = 1; n <= processes; n++)); do
    process aeshna "$n"
    ((torch)) || continue
    process pytorch "$n"
    ((n == 1)) && judge_all
  done
  if ((keep == 0 && before == ${#failed[@]} + undone)); then rm -rf "$work"; fi
done
rmdir "$scratch" 2>/dev/null || true

folders=()
for folder in "$out"/*/; do
  compgen -G "$folder*-[0-9]*.json" >/dev/null && folders+=("$folder")
done
if ((${#folders[@]})); then
  "$aeshna" bench report "${folders[@]}" --out "$out/report" || fail "the report failed"
fi
if ((${#failed[@]})); then
  printf '%d failed:\n' "${#failed[@]}" >&2
  printf '  %s\n' "${failed[@]}" >&2
  exit 1
fi
((undone == 0)) || { echo "$undone steps not begun after $stop_after s: call it again" >&2; exit 4; }
echo "results: $out"
