#pragma once
#include <functional>
#include <string>

namespace aeshna::cli {

/// Lines of standard input, without their ends.
class LineInput {
 public:
  enum class Event { Line, End, Interrupted };
  /// Waits for a line. Interrupted: `interrupted` became true; what was typed so far is kept.
  Event next(std::string& line, const std::function<bool()>& interrupted);
  static bool is_terminal();

 private:
  std::string pending_;
  bool ended_ = false;
};

}  // namespace aeshna::cli
