#pragma once
// The program's commands: one file each. A command registers its options and, when chosen, sets the action to run.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>

#include "aeshna/device.h"
#include "base/format.h"

namespace aeshna::cli {

/// Options that every command takes.
struct Globals {
  std::string device;
  bool validation = false;
  bool quiet = false;
  DeviceRequest request() const { return {.selector = device, .caps = {}, .validation = validation}; }
};

/// Returns the exit status; throws Error.
using Action = std::function<int()>;

inline constexpr int kFailed = 1;         ///< an Error, or a check that failed
inline constexpr int kUsage = 2;          ///< wrong arguments
inline constexpr int kInterrupted = 130;  ///< 128 + SIGINT, as shells expect

/// For arguments that do not go together, or that only an action understands: the message, where the help is, and status kUsage.
template <class... Args>
[[noreturn]] void wrong_arguments(std::format_string<Args...> format, Args&&... args) {
  throw CLI::ValidationError(formatted(format, std::forward<Args>(args)...));
}

/// Checks of options that CLI11's ranges let pass: not a number; a sign, or more digits than 64 bits hold.
CLI::Validator finite();
CLI::Validator unsigned_number();

/// Each adds one command to `app`. `globals` and `action` must outlive the parse.
void add_devices(CLI::App& app, const Globals& globals, Action& action);
void add_info(CLI::App& app, const Globals& globals, Action& action);
void add_convert(CLI::App& app, const Globals& globals, Action& action);
void add_generate(CLI::App& app, const Globals& globals, Action& action);
void add_chat(CLI::App& app, const Globals& globals, Action& action);
void add_serve(CLI::App& app, const Globals& globals, Action& action);
void add_train(CLI::App& app, const Globals& globals, Action& action);
void add_dump(CLI::App& app, const Globals& globals, Action& action);
void add_check(CLI::App& app, const Globals& globals, Action& action);
void add_profile(CLI::App& app, const Globals& globals, Action& action);
void add_run(CLI::App& app, const Globals& globals, Action& action);
void add_ops(CLI::App& app, const Globals& globals, Action& action);
void add_bench(CLI::App& app, const Globals& globals, Action& action);

}  // namespace aeshna::cli
