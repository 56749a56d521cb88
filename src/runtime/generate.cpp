#include "aeshna/generate.h"

#include <algorithm>
#include <chrono>

#include "base/checked.h"
#include "base/fail.h"

namespace aeshna {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Text that comes out, and what is held back because a stop text may begin in it.
class Output {
 public:
  Output(const GenerateOptions& options, std::string& text) : options_(options), text_(text) {}

  /// Takes more text; false: a stop text was met, or the caller has had enough.
  bool push(std::string_view more, Generation::End& end) {
    held_ += more;
    std::size_t stop = std::string::npos;
    for (const std::string& s : options_.stop)
      if (!s.empty()) stop = std::min(stop, held_.find(s));
    if (stop != std::string::npos) {
      held_.resize(stop);
      end = Generation::End::Stop;
      return flush(held_.size()), false;
    }
    std::size_t kept = 0;
    for (const std::string& s : options_.stop)
      for (std::size_t n = std::min(s.size(), held_.size()); n > kept; --n)
        if (held_.ends_with(std::string_view(s).substr(0, n))) kept = n;
    if (flush(held_.size() - kept)) return true;
    end = Generation::End::Caller;
    return false;
  }
  bool flush() { return flush(held_.size()); }

 private:
  bool flush(std::size_t count) {
    if (count == 0) return true;
    const std::string out = held_.substr(0, count);
    held_.erase(0, count);
    text_ += out;
    return !options_.on_text || options_.on_text(out);
  }
  const GenerateOptions& options_;
  std::string& text_;
  std::string held_;
};

}  // namespace

void load_weights(const LanguageModel& model, Weights& weights) {
  for (const auto& [name, type] : model.parameters()) {
    try {
      weights.set(name, model.weight(name));
    } catch (Error& e) {
      throw e.context(model.name());
    }
  }
}

struct Generator::Impl {
  Impl(LanguageModel m, GeneratorOptions o)
      : model(std::move(m)),
        options(check(o)),
        weights(options.device.value_or(Device{})),
        chunks(session(options.chunk)),
        tokens(session(1)) {
    load_weights(model, weights);
  }

  static GeneratorOptions check(GeneratorOptions o) {
    if (o.context < 1 || o.chunk < 1 || o.chunk > 1 << 16)
      fail(ErrorCode::InvalidArgument, "a generator with a context of {} in chunks of {}", o.context, o.chunk);
    o.chunk = std::min(o.chunk, o.context);
    return o;
  }

  Session session(std::int64_t rows) {
    Graph graph;
    const Value ids = graph.input("ids", {1, rows}, DType::i32);
    const models::LlamaDecode decode{.position = graph.input("position", {1}, DType::i32),
                                     .capacity = options.context,
                                     .row = graph.input("row", {1}, DType::i32)};
    graph.output("logits", models::llama_decode(ids, decode, model.config()));
    return compile(graph, weights);
  }

  /// Computes what the caches do not hold of `ids`; the logits that follow them.
  std::vector<float> read(std::span<const std::int32_t> ids) {
    // The last id is computed again at least, since its logits are wanted.
    std::size_t done = 0;
    while (done + 1 < ids.size() && done < cached.size() && cached[done] == ids[done]) ++done;
    cached.resize(done);
    Session* last = nullptr;
    while (done < ids.size()) {
      const auto chunk = static_cast<std::size_t>(options.chunk);
      // A chunk that is not full writes rows that nobody sees; it must fit nevertheless.
      const bool whole = ids.size() - done > 1 && done + chunk <= static_cast<std::size_t>(options.context);
      const std::size_t count = whole ? std::min(chunk, ids.size() - done) : 1;
      last = whole ? &chunks : &tokens;
      std::vector<std::int32_t> rows(whole ? chunk : 1, ids[done]);
      std::ranges::copy(ids.subspan(done, count), rows.begin());
      const std::int32_t position = static_cast<std::int32_t>(done), row = static_cast<std::int32_t>(count - 1);
      last->set("ids", rows);
      last->set("position", std::span(&position, 1));
      last->set("row", std::span(&row, 1));
      last->step();
      cached.insert(cached.end(), ids.begin() + static_cast<std::ptrdiff_t>(done),
                    ids.begin() + static_cast<std::ptrdiff_t>(done + count));
      done += count;
    }
    try {
      last->wait();
      return last->read("logits");
    } catch (...) {
      cached.clear();
      throw;
    }
  }

  LanguageModel model;
  GeneratorOptions options;
  Weights weights;
  Session chunks, tokens;
  std::vector<std::int32_t> cached;  ///< ids whose keys and values the caches hold
};

Generator::Generator(LanguageModel model, GeneratorOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), options)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

const LanguageModel& Generator::model() const { return impl_->model; }

std::vector<float> Generator::logits(std::span<const std::int32_t> ids) {
  const std::int64_t vocab = impl_->model.config().vocab;
  if (ids.empty()) fail(ErrorCode::InvalidArgument, "generating needs at least one token to go on from");
  if (static_cast<std::int64_t>(ids.size()) > impl_->options.context)
    fail(ErrorCode::LimitExceeded, "{} tokens in a context of {}", ids.size(), impl_->options.context);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= vocab) fail(ErrorCode::OutOfRange, "{} is no token of a vocabulary of {}", id, vocab);
  return impl_->read(ids);
}

Generation Generator::generate(std::span<const std::int32_t> prompt, Sampler& sampler, const GenerateOptions& options) {
  Generation result;
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  auto start = std::chrono::steady_clock::now();
  std::vector<float> next = logits(ids);
  result.prompt_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  const auto ends = impl_->model.tokenizer().ends();
  TextStream stream(impl_->model.tokenizer(), options.special);
  Output output(options, result.text);
  bool open = options.max_tokens > 0;
  while (open) {
    const std::int32_t id = sampler.next(next, ids);
    ids.push_back(id);
    result.ids.push_back(id);
    const bool ended = std::ranges::find(ends, id) != ends.end();
    // The vocabulary may be padded beyond the tokenizer's tokens.
    if (id < impl_->model.tokenizer().size() && (!ended || options.special))
      open = output.push(stream.push(id), result.end);
    if (!open) break;
    if (ended) {
      result.end = Generation::End::Token;
    } else if (static_cast<std::int64_t>(result.ids.size()) >= options.max_tokens) {
      result.end = Generation::End::Length;
    } else if (static_cast<std::int64_t>(ids.size()) > impl_->options.context) {
      result.end = Generation::End::Context;
    } else {
      next = logits(ids);
      continue;
    }
    output.push(stream.finish(), result.end);
    output.flush();
    open = false;
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace aeshna
