#pragma once
// The one table of environment variables. Nothing else reads the environment.
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace aeshna {

struct EnvVariable {
  std::string_view name;
  std::string_view doc;
};
std::span<const EnvVariable> env_table();

std::string env_device();             ///< AESHNA_DEVICE: index, UUID or part of a name
std::string env_caps();               ///< AESHNA_CAPS: overrides, see restrict_caps
bool env_validation();                ///< AESHNA_VALIDATION=1
std::filesystem::path env_cache_dir();///< AESHNA_CACHE_DIR, else XDG_CACHE_HOME/aeshna, else ~/.cache/aeshna; "off": empty path, no disk cache
int env_log_level();                  ///< AESHNA_LOG: 0 errors, 1 warnings (default), 2 info, 3 debug
int env_threads();                    ///< AESHNA_THREADS: compile threads; default: all cores

}  // namespace aeshna
