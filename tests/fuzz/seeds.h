#pragma once
// Small sound files of each format, from the writers of Aeshna and of the tests: what tests/fuzz/corpus holds.
#include <map>
#include <string>
#include <string_view>

namespace aeshna::fuzz {

/// By file name. Equal on every machine.
std::map<std::string, std::string> seeds(std::string_view target);

}  // namespace aeshna::fuzz
