#!/usr/bin/env bash
# Sets up the machine, builds everything and runs all tests. The last line is "N passed, N failed, N skipped".
#   scripts/test.sh [--long] [--sanitizers]
#     --long        also the suites labelled `long` (suites whose name starts with Long)
#     --sanitizers  also the suites of the CPU side under AddressSanitizer and UndefinedBehaviorSanitizer, as CI does: a second
#                   build, as long as the first
# AESHNA_SKIP_SETUP=1 leaves out the package installation.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. scripts/common.sh

# What runs under the sanitizers: the suites of the CPU side (a --gtest_filter). A driver under AddressSanitizer would be
# slow and would report its own leaks, so suites that open a device stay out: those whose name has Gpu, Vulkan, Device
# or Session in it, and the long ones. (tests/CMakeLists.txt leaves out the files that hold nothing else.)
cpu_suites='*:-Long*:*/Long*:*Gpu*:*Vulkan*:*Device*:*Session*'

long=0 sanitizers=0
for argument in "$@"; do
  case $argument in
    --long) long=1 ;;
    --sanitizers) sanitizers=1 ;;
    *) echo "usage: scripts/test.sh [--long] [--sanitizers]" >&2; exit 2 ;;
  esac
done

give_up() {
  echo "scripts/test.sh: $1" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

set_up || give_up "set-up failed"
build ci || give_up "the build failed"
if ((sanitizers)); then
  build asan --target aeshna_tests || give_up "the build with sanitizers failed"
fi

root=$PWD
# The caches of a run live in its build folder: warm within the run, and the user's own stay out of it.
export MESA_SHADER_CACHE_DIR=$root/build/ci/mesa-cache
export AESHNA_CACHE_DIR=$root/build/ci/aeshna-cache
mkdir -p "$MESA_SHADER_CACHE_DIR" "$AESHNA_CACHE_DIR"
# Set-up has installed a driver: a run that skips the tests of the device has not tested it.
((${AESHNA_SKIP_SETUP:-0})) || export AESHNA_TEST_REQUIRE_DEVICE=1

rm -rf build/ci/test-results build/asan/test-results
mkdir -p build/ci/test-results build/asan/test-results
failed=0
if ((sanitizers)); then
  echo "CPU side under AddressSanitizer and UndefinedBehaviorSanitizer ..."
  pids=()
  for ((shard = 0; shard < 2; shard++)); do
    GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 \
      UBSAN_OPTIONS=print_stacktrace=1 AESHNA_CACHE_DIR=$root/build/asan/aeshna-cache-$shard \
      build/asan/aeshna_tests --gtest_brief=1 --gtest_filter="$cpu_suites" \
      --gtest_output="xml:$root/build/asan/test-results/sanitizers.$shard.xml" \
      >"build/asan/test-results/sanitizers.$shard.log" 2>&1 &
    pids+=($!)
  done
  shard=0
  for pid in "${pids[@]}"; do
    if ! wait "$pid"; then
      failed=1
      cat "build/asan/test-results/sanitizers.$shard.log"
      touch "build/asan/test-results/sanitizers.$shard.failed"
    fi
    shard=$((shard + 1))
  done
fi

selection=(-LE '^long$')
((long)) && selection=()
ctest --test-dir build/ci -j2 "${selection[@]}" --output-on-failure --no-tests=error \
  --output-junit test-results/ctest.junit | tee build/ci/ctest.log
((PIPESTATUS[0] == 0)) || failed=1

# The end: what was skipped and why, what failed, ctest's own summary, and the line that sums up both runs.
summary=$(tools/test_summary build/ci/test-results build/asan/test-results) || failed=1
sed '$d' <<<"$summary"
grep 'tests passed' build/ci/ctest.log
tail -n 1 <<<"$summary"
exit $failed
