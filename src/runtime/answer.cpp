#include "runtime/answer.h"

#include <algorithm>

namespace aeshna {

bool StopText::push(std::string_view more, Generation::End& end) {
  held_ += more;
  std::size_t stop = std::string::npos;
  for (const std::string& s : options_.stop)
    if (!s.empty()) stop = std::min(stop, held_.find(s));
  if (stop != std::string::npos) {
    held_.resize(stop);
    end = Generation::End::Stop;
    flush();
    return false;
  }
  std::size_t kept = 0;
  for (const std::string& s : options_.stop)
    for (std::size_t n = std::min(s.size(), held_.size()); n > kept; --n)
      if (held_.ends_with(std::string_view(s).substr(0, n))) kept = n;
  if (flush(held_.size() - kept)) return true;
  end = Generation::End::Caller;
  return false;
}

bool StopText::flush(std::size_t count) {
  if (count == 0) return true;
  const std::string out = held_.substr(0, count);
  held_.erase(0, count);
  text_ += out;
  return !options_.on_text || options_.on_text(out);
}

Answer::Answer(const Tokenizer& tokenizer, const GenerateOptions& options, std::int64_t prompt, std::int64_t context)
    : tokenizer_(tokenizer), options_(options), stream_(tokenizer, options.special), output_(options, result.text) {
  const std::int64_t room = context - prompt + 1;  // the last token is not read
  limit_ = std::clamp<std::int64_t>(options.max_tokens, 0, room);
  limit_end_ = options.max_tokens > room ? Generation::End::Context : Generation::End::Length;
  result.end = limit_end_;
}

void Answer::note_time() {
  const double now = std::chrono::duration<double>(Clock::now() - start_).count();
  (result.ids.size() <= 1 ? result.prompt_seconds : result.seconds) =
      now - (result.ids.size() <= 1 ? 0 : result.prompt_seconds);
}

bool Answer::push(std::int32_t id) {
  result.ids.push_back(id);
  note_time();
  const auto ends = tokenizer_.ends();
  const bool ended = std::ranges::find(ends, id) != ends.end();
  // The vocabulary may be padded beyond the tokenizer's tokens.
  if (id < tokenizer_.size() && (!ended || options_.special) && !output_.push(stream_.push(id), result.end))
    return false;
  if (!ended && static_cast<std::int64_t>(result.ids.size()) < limit_) return true;
  result.end = ended ? Generation::End::Token : limit_end_;
  if (output_.push(stream_.finish(), result.end)) output_.flush();
  return false;
}

void Answer::end(Generation::End why, std::exception_ptr error) {
  result.end = why;
  result.error = std::move(error);
}

}  // namespace aeshna
