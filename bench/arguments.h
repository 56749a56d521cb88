#pragma once
// What the benchmarks share in reading their arguments.
#include <sstream>
#include <string>
#include <vector>

namespace aeshna::bench {

/// The parts of a list like "f32,q8_0".
inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace aeshna::bench
