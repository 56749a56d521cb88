#pragma once
// What the training commands say while they run.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "aeshna/session.h"
#include "base/format.h"
#include "cli/text.h"

namespace aeshna::cli {

/// One labelled line.
template <class... Args>
void report(std::string_view label, std::format_string<Args...> format, Args&&... args) {
  std::printf("%-9s %s\n", std::string(label).c_str(), formatted(format, std::forward<Args>(args)...).c_str());
  std::fflush(stdout);
}

/// How long compiling took and what the session takes.
void report_compilation(const Session& session);
/// Error(Io) unless a file can lie there: said before the first step rather than after the last.
void require_file(const std::filesystem::path& path);

/// How far a run of steps is: a line that is rewritten on a terminal, about ten lines in a pipe, nothing if quiet.
class StepProgress {
 public:
  /// Begins now, after `first` of the steps.
  StepProgress(std::int64_t first, std::int64_t steps, bool quiet);
  /// Whether the state after `done` steps is one of those for a pipe.
  bool milestone(std::int64_t done) const { return done % every_ == 0 || done == steps_; }
  /// "step DONE/STEPS  WHAT  1.2 steps/s  30 s left"
  void show(std::int64_t done, std::string_view what);
  void clear() { line_.clear(); }
  double seconds() const;  ///< since it began

 private:
  std::int64_t first_, steps_, every_;
  bool quiet_;
  ProgressLine line_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace aeshna::cli
