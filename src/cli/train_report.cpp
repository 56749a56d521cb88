#include "cli/train_report.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/fail.h"

namespace aeshna::cli {

StepProgress::StepProgress(std::int64_t first, std::int64_t steps, bool quiet)
    : first_(first),
      steps_(steps),
      every_(std::max<std::int64_t>(1, (steps + 9) / 10)),
      quiet_(quiet),
      line_(!quiet),
      start_(std::chrono::steady_clock::now()) {}

double StepProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void StepProgress::show(std::int64_t done, std::string_view what) {
  const bool line = line_.due(), print = !quiet_ && !line_.live() && milestone(done);
  if (!line && !print) return;
  const double rate = static_cast<double>(done - first_) / std::max(seconds(), 1e-9);
  std::string text = formatted("step {}/{}  {}  {:.{}f} steps/s", done, steps_, what, rate, rate < 1 ? 3 : 1);
  if (done < steps_)
    text += "  " + format_seconds(std::max(1.0, std::round(static_cast<double>(steps_ - done) / rate))) + " left";
  if (line) line_.show(text);
  if (print) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
}

void report_compilation(const Session& session) {
  double seconds = 0;
  for (const Session::StageSeconds& stage : session.compile_times()) seconds += stage.seconds;
  const Session::Memory memory = session.memory();
  report("compiled", "in {}", format_seconds(seconds));
  report("memory", "{} of parameters, moments, inputs and outputs; {} hold {} of intermediates; {} workspace",
         format_bytes(memory.pinned_bytes), format_bytes(memory.arena_bytes), format_bytes(memory.logical_bytes),
         format_bytes(memory.workspace_bytes));
}

void require_file(const std::filesystem::path& path) {
  std::error_code unseen;
  const auto status = std::filesystem::status(path, unseen);
  if (std::filesystem::is_directory(status))
    fail(ErrorCode::Io, "{}: is a folder; the name of a file is needed", path.string());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(ErrorCode::Io, "{}: cannot be written: it is no regular file", path.string());
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, unseen))
    fail(ErrorCode::Io, "{}: there is no folder {}", path.string(), folder.string());
}

}  // namespace aeshna::cli
