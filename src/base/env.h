#pragma once
// The one table of environment variables. Nothing else reads the environment.
#include <filesystem>
#include <optional>
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
/// For programs of our own that measure compilation: this directory instead, from now on; nullopt: what the environment says.
void env_set_cache_dir(std::optional<std::filesystem::path> directory);
std::string env_hub_url();            ///< AESHNA_HUB_URL: in place of https://huggingface.co; "": not set
std::string env_hub_token();          ///< HF_TOKEN: for models that ask for one; a secret
bool env_offline();                   ///< AESHNA_OFFLINE=1: no downloads
std::string env_libcurl();            ///< AESHNA_LIBCURL: the library to open, in place of the system's
int env_log_level();                  ///< AESHNA_LOG: 0 errors, 1 warnings (default), 2 info, 3 debug
int env_threads();                    ///< AESHNA_THREADS: compile threads; default: all cores

/// For programs of our own, before a driver is loaded: NVIDIA's shader cache on disk is left out unless the user has set
/// __GL_SHADER_DISK_CACHE, since our pipeline cache holds the same kernels and looking them up twice costs 15 to 20 ms per
/// compile() (docs/performance.md). Does nothing when our caches are off. A library must not change its host's environment.
void env_use_own_pipeline_cache();

}  // namespace aeshna
