// The only file of the program that a new commit compiles again.
#include "cli/build_info.h"
#include "aeshna_commit.h"  // made by cmake/write_commit.cmake

namespace aeshna::cli {

bench::Revision built_revision() {
  return {.commit = AESHNA_COMMIT,
          .clean = AESHNA_COMMIT_CLEAN < 0 ? std::nullopt : std::optional(AESHNA_COMMIT_CLEAN == 1)};
}

}  // namespace aeshna::cli
