#include "nn/language/examples.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/hash.h"
#include "io/json_field.h"

namespace aeshna {

namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::uint64_t kMaxFile = 4ull << 30;

std::size_t common(const Ids& a, const Ids& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Reads one file.
class Reader {
 public:
  Reader(const std::filesystem::path& file, const LanguageModel& model, std::int64_t window)
      : file_(file.string()), model_(model), tokenizer_(model.tokenizer()), examples_(window) {}

  Examples read() {
    const std::string extension = std::filesystem::path(file_).extension().string();
    const bool lines = extension == ".jsonl";
    if (!lines && extension != ".txt" && extension != ".md") {
      fail(ErrorCode::Unsupported, "{}: text to train on is .txt or .md, or .jsonl with an object in each line", file_);
    }
    {
      const std::vector<std::byte> bytes = read_file(file_, kMaxFile);
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      lines ? read_lines(text) : examples_.add_text(tokenizer_.encode(text));
    }
    if (examples_.size() == 0) {
      fail(ErrorCode::InvalidArgument, "{}: there is nothing to learn{}", file_,
           examples_.empty() > 0 ? ": every answer begins beyond the window" : "");
    }
    return std::move(examples_);
  }

 private:
  void read_lines(std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = formatted("{}:{}", file_, number);
      const nlohmann::json json = parse_json(line, where);
      read_line(JsonField(where, json));
    }
  }

  void read_line(const JsonField& line) {
    if (!line.is_object()) fail(ErrorCode::CorruptFile, "{}: the line is no JSON object", line.source());
    const bool text = line.has("text"), completion = line.has("completion"), messages = line.has("messages");
    if (int{text} + int{completion} + int{messages} != 1) {
      fail(ErrorCode::CorruptFile, "{}: the line needs one of 'text', 'prompt' with 'completion', and 'messages'",
           line.source());
    }
    if (text) {
      Ids ids = tokenizer_.encode(line.at("text").text());
      append_end(ids);
      examples_.add_text(ids);
    } else if (completion) {
      read_completion(line.at("prompt").text(), line.at("completion").text());
    } else {
      read_messages(line);
    }
  }

  bool is_end(std::int32_t id) const { return std::ranges::find(tokenizer_.ends(), id) != tokenizer_.ends().end(); }

  void append_end(Ids& ids) const {
    if ((ids.empty() || !is_end(ids.back())) && tokenizer_.eos()) ids.push_back(*tokenizer_.eos());
  }

  /// Both are encoded as one text. Where a token spans the boundary it counts as a part of the completion.
  void read_completion(const std::string& prompt, const std::string& completion) {
    Ids ids = tokenizer_.encode(prompt + completion);
    append_end(ids);
    const Examples::Range answer{common(tokenizer_.encode(prompt), ids), ids.size()};
    examples_.add(ids, std::span(&answer, 1));
  }

  std::vector<ChatMessage> messages_of(const JsonField& line) const {
    std::vector<ChatMessage> messages;
    for (const JsonField& message : line.at("messages").items()) {
      messages.push_back({message.at("role").text(), message.at("content").text()});
      for (const auto& [name, value] : message.members())
        if (name != "role" && name != "content" && message.has(name)) value.refuse("no part of a message here");
    }
    return messages;
  }

  Ids encode(std::span<const ChatMessage> messages, bool answer) const {
    return tokenizer_.encode(template_of().render(messages, tokenizer_, answer), false);
  }

  const ChatTemplate& template_of() const {
    if (!template_) template_ = model_.chat_template();
    return *template_;
  }

  /// What the model is given before an answer, and the answer up to the token that ends the turn.
  struct Answer {
    Ids ids;
    Examples::Range range;
  };

  /// Some formats write what came before otherwise once there is an answer. So the answer's ids are taken from the shortest conversation,
  /// and put behind what the model is given.
  Answer answer_to(std::span<const ChatMessage> before, const std::string& content) const {
    const std::vector<ChatMessage> shortest = {{"user", "?"}, {"assistant", content}};
    const Ids asked = encode(std::span(shortest).first(1), true);
    Ids answered = encode(shortest, false);
    while (!answered.empty() && !is_end(answered.back())) answered.pop_back();
    const std::size_t same = common(asked, answered);
    if (same == answered.size())
      fail(ErrorCode::Unsupported, "the chat format ends an answer with no token that ends a text");
    Answer answer{.ids = encode(before, true), .range = {}};
    answer.ids.resize(
        answer.ids.size() -
        std::min(answer.ids.size(), asked.size() - same));  // a token that spans the boundary is of the answer
    answer.range.begin = answer.ids.size();
    answer.ids.insert(answer.ids.end(), answered.begin() + static_cast<std::ptrdiff_t>(same), answered.end());
    answer.range.end = answer.ids.size();
    return answer;
  }

  void read_messages(const JsonField& line) {
    const std::vector<ChatMessage> messages = messages_of(line);
    std::vector<Answer> answers;
    try {
      for (std::size_t i = 0; i < messages.size(); ++i)
        if (messages[i].role == "assistant")
          answers.push_back(answer_to(std::span(messages).first(i), messages[i].content));
    } catch (Error& e) {
      throw e.context(line.source());
    }
    if (answers.empty()) line.at("messages").refuse("without any message of the assistant");
    // Answers that are the start of what comes after them share its sequence.
    std::vector<Examples::Range> ranges;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      ranges.push_back(answers[i].range);
      const bool goes_on =
          i + 1 < answers.size() && common(answers[i].ids, answers[i + 1].ids) == answers[i].ids.size();
      if (goes_on) continue;
      examples_.add(answers[i].ids, ranges);
      ranges.clear();
    }
  }

  std::string file_;
  const LanguageModel& model_;
  const Tokenizer& tokenizer_;
  mutable std::optional<ChatTemplate> template_;
  Examples examples_;
};

}  // namespace

Examples::Examples(std::int64_t window) : window_(static_cast<std::size_t>(window)) {
  if (window < 1) fail(ErrorCode::InvalidArgument, "a window of {} tokens", window);
}

void Examples::add_text(std::span<const std::int32_t> ids) {
  const std::size_t first = ids_.size();
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += window_) {
    const std::size_t end = std::min(ids.size(), begin + window_ + 1);
    sequences_.push_back({first + begin, first + end});
    predicted_ += end - begin - 1;
    longest_ = std::max(longest_, static_cast<std::int64_t>(end - begin - 1));
  }
  if (ids.size() < 2) return;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  marked_.resize(ids_.size(), true);
}

void Examples::add(std::span<const std::int32_t> ids, std::span<const Range> answers) {
  const std::size_t count = std::min(ids.size(), window_ + 1);
  std::vector<bool> marked(count, false);
  for (const Range& answer : answers)
    for (std::size_t i = std::max<std::size_t>(answer.begin, 1); i < std::min(answer.end, count); ++i) marked[i] = true;
  const auto predicted = static_cast<std::size_t>(std::ranges::count(marked, true));
  cut_ += ids.size() > count;
  if (predicted == 0) {
    ++empty_;
    return;
  }
  predicted_ += predicted;
  sequences_.push_back({ids_.size(), ids_.size() + count});
  longest_ = std::max(longest_, static_cast<std::int64_t>(count) - 1);
  ids_.insert(ids_.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  marked_.insert(marked_.end(), marked.begin(), marked.end());
}

std::size_t Examples::tokens(std::size_t sequence) const {
  const Range& range = sequences_.at(sequence);
  return static_cast<std::size_t>(std::count(marked_.begin() + static_cast<std::ptrdiff_t>(range.begin) + 1,
                                             marked_.begin() + static_cast<std::ptrdiff_t>(range.end), true));
}

void Examples::fill(std::size_t sequence, std::span<std::int32_t> ids, std::span<std::int32_t> labels) const {
  const Range& range = sequences_.at(sequence);
  const std::size_t count = range.end - range.begin - 1;
  AESHNA_CHECK(ids.size() == labels.size() && ids.size() >= count);
  std::ranges::fill(ids, 0);
  std::ranges::fill(labels, kIgnored);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = ids_[range.begin + i];
    if (marked_[range.begin + i + 1]) labels[i] = ids_[range.begin + i + 1];
  }
}

std::string Examples::fingerprint() const {
  Hasher hasher;
  hasher.add(std::as_bytes(std::span(ids_)));
  for (const Range& range : sequences_) hasher.add(range.begin).add(range.end);
  std::uint64_t bits = 1;
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    bits = 2 * bits + marked_[i];
    if (i % 63 == 62 || i + 1 == marked_.size()) {
      hasher.add(bits);
      bits = 1;
    }
  }
  return hasher.hex();
}

Examples read_examples(const std::filesystem::path& file, const LanguageModel& model, std::int64_t window) {
  return Reader(file, model, window).read();
}

}  // namespace aeshna
