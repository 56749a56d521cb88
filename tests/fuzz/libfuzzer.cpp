// A program for libFuzzer, one for each target: AESHNA_FUZZ_TARGET is its name.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace aeshna::fuzz;
  static const Target& target = *std::ranges::find(targets(), AESHNA_FUZZ_TARGET, &Target::name);
  try {
    run(target, {reinterpret_cast<const std::byte*>(data), size});
  } catch (const Violation& violation) {
    std::fprintf(stderr, "%s: %s\n", AESHNA_FUZZ_TARGET, violation.what());
    std::abort();
  }
  return 0;
}
