// base/env: defaults, and messages that name the variable.
#include <gtest/gtest.h>

#include <cstdlib>

#include "aeshna/error.h"
#include "base/env.h"

#ifndef _WIN32
namespace aeshna {
namespace {

/// Sets a variable (nullptr: unsets it) and restores it.
class WithEnv {
 public:
  WithEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~WithEnv() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  WithEnv(const WithEnv&) = delete;
  WithEnv& operator=(const WithEnv&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Env, CacheDirectory) {
  const WithEnv home("HOME", "/home/u");
  const WithEnv xdg("XDG_CACHE_HOME", nullptr);
  {
    const WithEnv own("AESHNA_CACHE_DIR", nullptr);
    EXPECT_EQ(env_cache_dir(), "/home/u/.cache/aeshna");
    const WithEnv set("XDG_CACHE_HOME", "/x");
    EXPECT_EQ(env_cache_dir(), "/x/aeshna");
    const WithEnv unset("XDG_CACHE_HOME", nullptr);
    const WithEnv homeless("HOME", nullptr);
    EXPECT_EQ(env_cache_dir(), "");
  }
  EXPECT_EQ((WithEnv("AESHNA_CACHE_DIR", "/c"), env_cache_dir()), "/c");
  EXPECT_EQ((WithEnv("AESHNA_CACHE_DIR", "off"), env_cache_dir()), "");
}

TEST(Env, NumbersAreChecked) {
  EXPECT_EQ((WithEnv("AESHNA_LOG", nullptr), env_log_level()), 1);
  EXPECT_EQ((WithEnv("AESHNA_LOG", "3"), env_log_level()), 3);
  EXPECT_EQ((WithEnv("AESHNA_THREADS", "2"), env_threads()), 2);
  EXPECT_GE((WithEnv("AESHNA_THREADS", nullptr), env_threads()), 1);
  EXPECT_TRUE((WithEnv("AESHNA_VALIDATION", "1"), env_validation()));
  EXPECT_FALSE((WithEnv("AESHNA_VALIDATION", nullptr), env_validation()));
  for (const char* bad : {"4", "-1", "x", "1x", "99999999999999"}) {
    const WithEnv set("AESHNA_LOG", bad);
    try {
      env_log_level();
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("AESHNA_LOG='" + std::string(bad) + "'"), std::string::npos) << error.message();
    }
  }
}

TEST(Env, TableNamesEveryVariable) {
  for (const EnvVariable& variable : env_table()) {
    EXPECT_TRUE(variable.name.starts_with("AESHNA_") || variable.name == "HF_TOKEN");  // which people have set already
    EXPECT_FALSE(variable.doc.empty());
  }
  EXPECT_EQ(env_table().size(), 10u);
}

}  // namespace
}  // namespace aeshna
#endif
