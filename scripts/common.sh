# shellcheck shell=bash
# Shared by the scripts beside it; sourced with the repository's root as the current folder.

jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

set_up() {
  [[ -n ${AESHNA_SKIP_SETUP:-} ]] || scripts/setup.sh
}

# build PRESET [arguments of cmake --build]: quiet unless something is built or fails.
build() {
  local preset=$1 log
  shift
  log=$(mktemp)
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "configuring the preset $preset failed" >&2
    return 1
  fi
  rm -f "$log"
  echo "building (preset $preset, $jobs jobs) ..."
  cmake --build "build/$preset" -j "$jobs" "$@"
}

run_echo() {
  printf '$ %s\n' "$*"
  "$@"
}
