#include "bench/environment.h"

#include <ctime>
#include <fstream>

#include "base/format.h"

#ifndef _WIN32
#include <sys/utsname.h>
#endif

namespace aeshna::bench {
namespace {

/// What follows `key` in the first line of a file that begins so; "" without.
std::string line_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return "";
}

std::string os_name() {
#ifdef _WIN32
  return "Windows";
#else
  utsname name{};
  uname(&name);
  std::string distribution = line_value("/etc/os-release", "PRETTY_NAME=");
  std::erase(distribution, '"');
  return formatted("{}{}{} {} {}", distribution, distribution.empty() ? "" : ", ", name.sysname, name.release,
                   name.machine);
#endif
}

std::string cpu_name() {
  const std::string name = line_value("/proc/cpuinfo", "model name\t: ");
  return name.empty() ? "not known" : name;
}

std::string toolchain() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#elif defined(_MSC_FULL_VER)
  return formatted("MSVC {}", _MSC_FULL_VER);
#else
  return "not known";
#endif
}

}  // namespace

std::map<std::string, std::string> environment(const Device& device) {
  const DeviceInfo& info = device.info();
  return {{"gpu", info.name},        {"driver", info.driver}, {"api", "Vulkan " + info.api_version},
          {"os", os_name()},         {"cpu", cpu_name()},     {"toolchain", toolchain()},
          {"aeshna", AESHNA_VERSION}};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
#ifdef _WIN32
  gmtime_s(&utc, &now);
#else
  gmtime_r(&now, &utc);
#endif
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace aeshna::bench
