// Which sequence does what in a round.
#include "aeshna/generate.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/fail.h"
#include "runtime/answer.h"
#include "runtime/decoder.h"

namespace aeshna {

void load_weights(const LanguageModel& model, Weights& weights) {
  for (const auto& [name, type] : model.parameters()) {
    try {
      weights.set(name, model.weight(name));
    } catch (Error& e) {
      throw e.context(model.name());
    }
  }
}

namespace {

using Ids = std::vector<std::int32_t>;

/// Else the most likely token is next.
bool samples(const SamplingOptions& o) { return o.temperature != 0 || o.repetition_penalty != 1; }

/// A request that has a sequence. Stays where it is made.
struct Running {
  Running(std::uint64_t n, Request r, const Decoder& decoder)
      : number(n),
        request(std::move(r)),
        ids(request.prompt),
        answer(decoder.model().tokenizer(), request.options, static_cast<std::int64_t>(ids.size()),
               decoder.options().context) {}

  const SamplingOptions* sampling() const { return samples(request.sampling) ? &request.sampling : nullptr; }

  std::uint64_t number;
  Request request;
  Ids ids;                     ///< of the prompt, then what was generated
  std::size_t read = 0;        ///< of the prompt's ids; the last one is read by the first decode step
  std::int64_t submitted = 0;  ///< decode steps
  bool cancelled = false;
  Answer answer;
};

/// A place in the caches.
struct Sequence {
  Ids cached;  ///< ids whose rows they hold, while nothing runs here
  std::unique_ptr<Running> running;
};

}  // namespace

struct Generator::Impl {
  Impl(LanguageModel model, const GeneratorOptions& options)
      : decoder(std::move(model), options),
        sequences(static_cast<std::size_t>(decoder.options().sequences)),
        rows(sequences.size()) {}

  void check_ids(std::span<const std::int32_t> ids) const {
    const std::int64_t vocab = decoder.model().config().vocab;
    if (ids.empty()) fail(ErrorCode::InvalidArgument, "generating needs at least one token to go on from");
    if (static_cast<std::int64_t>(ids.size()) > decoder.options().context)
      fail(ErrorCode::LimitExceeded, "{} tokens in a context of {}", ids.size(), decoder.options().context);
    for (const std::int32_t id : ids)
      if (id < 0 || id >= vocab) fail(ErrorCode::OutOfRange, "{} is no token of a vocabulary of {}", id, vocab);
  }

  void check(const Request& request) const {
    check_ids(request.prompt);
    check_sampling(request.sampling);
    const std::int64_t window = request.sampling.repetition_window, most = decoder.options().repetition_window;
    if (request.sampling.repetition_penalty != 1 && window > most)
      fail(ErrorCode::InvalidArgument, "sampling: the repetition window is {}; this generator keeps {} tokens", window,
           most);
  }

  std::uint64_t add(Request request) {
    check(request);
    queue.push_back({++last_number, std::move(request)});
    return last_number;
  }

  Running* find(std::uint64_t number) const {
    for (const Sequence& s : sequences)
      if (s.running && s.running->number == number) return s.running.get();
    return nullptr;
  }
  bool idle() const {
    return queue.empty() && std::ranges::none_of(sequences, [](const Sequence& s) { return s.running != nullptr; });
  }

  void cancel(std::uint64_t number) {
    if (Running* running = find(number)) running->cancelled = true;
    if (const auto waits = std::ranges::find(queue, number, &Queued::number); waits != queue.end())
      waits->cancelled = true;
  }

  bool advance() {
    check_not_inside();
    inside = true;
    const std::unique_ptr<bool, void (*)(bool*)> leave(&inside, [](bool* flag) { *flag = false; });
    end_cancelled();
    admit();
    std::vector<std::uint64_t> owners;
    Ids ids;
    try {
      const bool submitted = submit();
      if (decoder.pending() > (submitted ? 1u : 0u)) {
        owners = std::move(owners_of.front());
        owners_of.pop_front();
        const std::span<const std::int32_t> taken = decoder.take();
        ids.assign(taken.begin(), taken.end());
      }
    } catch (...) {  // of the device: nobody's fault alone
      queue.clear();
      for (Sequence& s : sequences) s = {};
      drop();
      thrown = nullptr;
      throw;
    }
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Sequence& s = sequences[i];
      if (s.running && s.running->number == owners[i]) push(s, ids[i]);  // else it has ended meanwhile
    }
    const bool more = !idle();
    if (!more) drop();  // what ran ahead
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
    return more;
  }

  void check_not_inside() const {
    if (inside)
      fail(ErrorCode::InvalidArgument, "a callback of a generator may add and cancel requests, and nothing else");
  }

  void drop() {
    decoder.drop();
    owners_of.clear();
  }

  void end_cancelled() {
    for (Sequence& s : sequences)
      if (s.running && s.running->cancelled) end(s, Generation::End::Caller);
    while (true) {  // callbacks may change the queue
      const auto found = std::ranges::find(queue, true, &Queued::cancelled);
      if (found == queue.end()) return;
      Running unstarted(found->number, std::move(found->request), decoder);
      queue.erase(found);
      unstarted.answer.end(Generation::End::Caller);
      report(unstarted);
    }
  }

  /// Gives sequences to requests that wait: to each the one that holds most of its prompt, or else the least of others'.
  void admit() {
    while (!queue.empty()) {
      const Ids& prompt = queue.front().request.prompt;
      Sequence* best = nullptr;
      std::size_t best_common = 0;
      for (Sequence& s : sequences) {
        if (s.running) continue;
        const auto common = static_cast<std::size_t>(std::ranges::mismatch(s.cached, prompt).in1 - s.cached.begin());
        if (best != nullptr &&
            (common < best_common || (common == best_common && s.cached.size() >= best->cached.size())))
          continue;
        best = &s;
        best_common = common;
      }
      if (best == nullptr) return;
      const bool cancelled = queue.front().cancelled;  // by a callback of this round
      const Request& next = queue.front().request;
      std::exception_ptr error;
      try {  // before its time begins
        if (!cancelled)
          decoder.prepare_for(std::min(best_common, next.prompt.size() - 1), next.prompt.size(),
                              samples(next.sampling));
      } catch (...) {
        error = std::current_exception();
      }
      auto running = std::make_unique<Running>(queue.front().number, std::move(queue.front().request), decoder);
      queue.pop_front();
      if (cancelled) running->answer.end(Generation::End::Caller);
      if (error) running->answer.end(Generation::End::Error, error);
      if (cancelled || error || running->answer.limit() == 0) {
        report(*running);
        continue;
      }
      running->read = std::min(best_common, running->ids.size() - 1);
      best->cached.resize(best_common);
      best->running = std::move(running);
    }
  }

  /// False: there was no decode step to submit.
  bool submit() {
    bool any = false;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      rows[i] = {};
      Running* r = sequences[i].running.get();
      if (r == nullptr) continue;
      if (r->read + 1 < r->ids.size() && r->submitted == 0) read_chunk(i, *r);
      if (r->read + 1 < r->request.prompt.size() || r->submitted == r->answer.limit()) continue;
      rows[i] = {.active = true,
                 .start = r->submitted == 0 ? std::span<const std::int32_t>(r->ids) : std::span<const std::int32_t>(),
                 .sampling = r->sampling()};
      ++r->submitted;
      any = true;
    }
    if (!any) return false;
    // Whose ids they are, when they come back.
    auto& owners = owners_of.emplace_back();
    for (std::size_t i = 0; i < sequences.size(); ++i)
      owners.push_back(rows[i].active ? sequences[i].running->number : 0);
    decoder.step(rows);
    return true;
  }

  void read_chunk(std::size_t sequence, Running& r) {
    const std::span<const std::int32_t> prompt = r.request.prompt;
    r.read += decoder.read(sequence, r.read, prompt.subspan(r.read, prompt.size() - 1 - r.read));
  }

  void push(Sequence& s, std::int32_t id) {
    Running& r = *s.running;
    if (id < 0) {
      s.running->ids.clear();  // its rows may be as bad
      return end(s, Generation::End::Error,
                 std::make_exception_ptr(Error(ErrorCode::NonFinite, "the logits of a token are not finite")));
    }
    r.ids.push_back(id);
    try {
      if (r.answer.push(id)) return;
    } catch (...) {
      return end(s, Generation::End::Error, std::current_exception());
    }
    end(s, r.answer.result.end);
  }

  void end(Sequence& s, Generation::End why, std::exception_ptr error = {}) {
    const std::unique_ptr<Running> r = std::move(s.running);
    // The last id was never read; of a prompt that was not read completely, what was.
    const std::size_t prompt = r->request.prompt.size();
    const std::size_t held = r->ids.size() > prompt ? r->ids.size() - 1 : std::min(r->read, r->ids.size());
    s.cached.assign(r->ids.begin(), r->ids.begin() + static_cast<std::ptrdiff_t>(held));
    r->answer.end(why, std::move(error));
    report(*r);
  }

  /// What on_end throws must not keep the others from their ids: advance() throws it at its end.
  void report(Running& r) {
    if (!r.request.on_end) return;
    try {
      r.request.on_end(std::move(r.answer.result));
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
  }

  std::vector<float> logits(std::span<const std::int32_t> ids) {
    check_ids(ids);
    check_not_inside();
    if (!idle()) fail(ErrorCode::InvalidArgument, "logits are asked for while requests are under way");
    drop();
    std::size_t best = 0, done = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Ids& cached = sequences[i].cached;
      const auto common = static_cast<std::size_t>(std::ranges::mismatch(cached, ids).in1 - cached.begin());
      if (common > done) best = i, done = common;
    }
    Ids& cached = sequences[best].cached;
    cached.clear();  // until it is known
    for (done = std::min(done, ids.size() - 1); done + 1 < ids.size();)
      done += decoder.read(best, done, ids.subspan(done, ids.size() - 1 - done));
    std::ranges::fill(rows, DecodeRow{});
    rows[best] = {.active = true, .start = ids};
    decoder.step(rows);
    decoder.drop();
    std::vector<float> result = decoder.logits(best);
    cached.assign(ids.begin(), ids.end());
    return result;
  }

  struct Queued {
    std::uint64_t number;
    Request request;
    bool cancelled = false;
  };
  Decoder decoder;
  std::vector<Sequence> sequences;
  std::vector<DecodeRow> rows;                       ///< of a step
  std::deque<std::vector<std::uint64_t>> owners_of;  ///< of the rows of each step whose ids were not taken; 0: nobody's
  std::deque<Queued> queue;
  std::uint64_t last_number = 0;
  std::exception_ptr thrown;  ///< by an on_end
  bool inside = false;        ///< advance()
};

Generator::Generator(LanguageModel model, GeneratorOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), options)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

const LanguageModel& Generator::model() const { return impl_->decoder.model(); }
void Generator::prepare() { impl_->decoder.prepare_all(); }
std::uint64_t Generator::add(Request request) { return impl_->add(std::move(request)); }
bool Generator::advance() { return impl_->advance(); }
void Generator::cancel(std::uint64_t request) { impl_->cancel(request); }
std::vector<float> Generator::logits(std::span<const std::int32_t> ids) { return impl_->logits(ids); }

std::vector<Generation> Generator::generate(std::span<const Request> requests) {
  for (const Request& request : requests) impl_->check(request);
  struct Results {
    std::vector<Generation> of;
    std::size_t open;
  };
  const auto results = std::make_shared<Results>(std::vector<Generation>(requests.size()), requests.size());
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.on_end = [results, i, given = requests[i].on_end](Generation generation) {
      --results->open;
      results->of[i] = generation;
      if (given) given(std::move(generation));
    };
    numbers.push_back(add(std::move(request)));
  }
  try {
    while (results->open > 0 && advance()) {}
  } catch (...) {
    for (const std::uint64_t number : numbers) cancel(number);
    throw;
  }
  return std::move(results->of);
}

Generation Generator::generate(std::span<const std::int32_t> prompt, const SamplingOptions& sampling,
                               const GenerateOptions& options) {
  const Request request{.prompt = {prompt.begin(), prompt.end()}, .sampling = sampling, .options = options};
  Generation result = std::move(generate(std::span(&request, 1)).front());
  if (result.error) std::rethrow_exception(result.error);
  return result;
}

Generation Generator::generate(std::span<const std::int32_t> prompt, Sampler& sampler, const GenerateOptions& options) {
  Ids ids(prompt.begin(), prompt.end());
  impl_->check_ids(ids);
  Answer answer(model().tokenizer(), options, static_cast<std::int64_t>(ids.size()), impl_->decoder.options().context);
  bool open = answer.limit() > 0;
  while (open) {
    const std::int32_t id = sampler.next(logits(ids), ids);
    open = answer.push(id);
    ids.push_back(id);
  }
  return std::move(answer.result);
}

}  // namespace aeshna
