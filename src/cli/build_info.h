#pragma once
#include "bench/environment.h"

namespace aeshna::cli {

/// The commit that this program was built from.
bench::Revision built_revision();

}  // namespace aeshna::cli
