#pragma once
// What a result file says of its origin.
#include <nlohmann/json.hpp>

#include "aeshna/device.h"
#include "aeshna_commit.h"  // made by cmake/write_commit.cmake

namespace aeshna::bench {

inline nlohmann::json machine(const Device& device) {
  return {{"device", device.info().name},
          {"driver", device.info().driver},
          {"api", device.info().api_version},
          {"commit", AESHNA_COMMIT_DESCRIPTION}};
}

}  // namespace aeshna::bench
