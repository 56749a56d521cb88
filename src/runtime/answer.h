#pragma once
// What becomes of the ids that a model generates: text as it comes, and when it ends.
#include <chrono>

#include "aeshna/generate.h"

namespace aeshna {

/// Text that comes out, and what is held back because a stop text may begin in it.
class StopText {
 public:
  /// Both outlive it.
  StopText(const GenerateOptions& options, std::string& text) : options_(options), text_(text) {}
  /// Takes more text; false: a stop text was met, or the caller has had enough, as `end` says.
  bool push(std::string_view more, Generation::End& end);
  /// Lets go of what was held back.
  void flush() { flush(held_.size()); }

 private:
  bool flush(std::size_t count);
  const GenerateOptions& options_;
  std::string& text_;
  std::string held_;
};

/// One answer while it grows. Stays where it is made.
class Answer {
 public:
  Answer(const Tokenizer& tokenizer, const GenerateOptions& options, std::int64_t prompt, std::int64_t context);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  /// Tokens that fit: what max_tokens and the context allow.
  std::int64_t limit() const { return limit_; }
  /// Takes the next id and calls back with its text; false: that was the last one.
  bool push(std::int32_t id);
  /// Ends it before its time.
  void end(Generation::End why, std::exception_ptr error = {});

  Generation result;

 private:
  using Clock = std::chrono::steady_clock;
  void note_time();

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  std::int64_t limit_;
  Generation::End limit_end_;
  TextStream stream_;
  StopText output_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace aeshna
