#include "base/env.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/fail.h"

namespace aeshna {

namespace {

constexpr std::array<EnvVariable, 10> kTable = {{
    {"AESHNA_DEVICE", "device to open: index, UUID, or a part of the name; 'null' plans only"},
    {"AESHNA_CAPS",
     "overrides that restrict the device's limits and features, such as "
     "max_groups=7,shared_bytes=16384,no_f16,no_subgroups"},
    {"AESHNA_VALIDATION", "1: Khronos validation layer with synchronization checks; any message is an error"},
    {"AESHNA_CACHE_DIR",
     "directory of compiled kernels and downloaded models (default: XDG_CACHE_HOME/aeshna, else ~/.cache/aeshna); "
     "'off': none"},
    {"AESHNA_HUB_URL", "where --hub downloads from (default: https://huggingface.co)"},
    {"AESHNA_OFFLINE", "1: --hub uses only what was downloaded before"},
    {"AESHNA_LIBCURL", "the libcurl to download with (default: the system's)"},
    {"HF_TOKEN", "access token for models of the hub that ask for one"},
    {"AESHNA_LOG", "0 errors, 1 warnings (default), 2 info, 3 debug"},
    {"AESHNA_THREADS", "threads that compile kernels (default: all cores)"},
}};

std::mutex cache_dir_mutex;
std::optional<std::filesystem::path> cache_dir;  ///< in place of what the environment says

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

int number(const char* name, int low, int high, int fallback) {
  const std::string value = text(name);
  if (value.empty()) return fallback;
  int parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size() || parsed < low || parsed > high) {
    fail(ErrorCode::InvalidArgument, "{}='{}': expected an integer from {} to {}", name, value, low, high);
  }
  return parsed;
}

}  // namespace

std::span<const EnvVariable> env_table() { return kTable; }

std::string env_device() { return text("AESHNA_DEVICE"); }
std::string env_caps() { return text("AESHNA_CAPS"); }
bool env_validation() { return number("AESHNA_VALIDATION", 0, 1, 0) == 1; }

void env_set_cache_dir(std::optional<std::filesystem::path> directory) {
  const std::scoped_lock lock(cache_dir_mutex);
  cache_dir = std::move(directory);
}

std::filesystem::path env_cache_dir() {
  {
    const std::scoped_lock lock(cache_dir_mutex);
    if (cache_dir) return *cache_dir;
  }
  const std::string own = text("AESHNA_CACHE_DIR");
  if (own == "off") return {};
  if (!own.empty()) return own;
  if (const std::string xdg = text("XDG_CACHE_HOME"); !xdg.empty()) return std::filesystem::path(xdg) / "aeshna";
#ifdef _WIN32
  if (const std::string local = text("LOCALAPPDATA"); !local.empty()) return std::filesystem::path(local) / "aeshna";
#endif
  if (const std::string home = text("HOME"); !home.empty()) return std::filesystem::path(home) / ".cache" / "aeshna";
  return {};
}

std::string env_hub_url() { return text("AESHNA_HUB_URL"); }
std::string env_hub_token() { return text("HF_TOKEN"); }
std::string env_libcurl() { return text("AESHNA_LIBCURL"); }
bool env_offline() { return number("AESHNA_OFFLINE", 0, 1, 0) == 1; }

int env_log_level() { return number("AESHNA_LOG", 0, 3, 1); }

int env_threads() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return number("AESHNA_THREADS", 1, 4096, cores > 0 ? cores : 1);
}

void env_use_own_pipeline_cache() {
#ifndef _WIN32
  if (!env_cache_dir().empty()) setenv("__GL_SHADER_DISK_CACHE", "0", 0);
#endif
}

}  // namespace aeshna
