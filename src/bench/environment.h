#pragma once
// Where a measurement was made.
#include <map>
#include <optional>
#include <string>

#include "aeshna/device.h"

namespace aeshna::bench {

/// The program's origin.
struct Revision {
  std::string commit;         ///< "" if it was not built in a checkout
  std::optional<bool> clean;  ///< whether its files were the commit's
};

std::map<std::string, std::string> environment(const Device& device);
std::string utc_now();  ///< "2026-11-29T22:10:00Z"

}  // namespace aeshna::bench
