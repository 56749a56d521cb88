#include "runtime/decoder.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "aeshna/sample.h"
#include "base/fail.h"

namespace aeshna {

namespace {

/// Ids that the shortest step for prompts reads; each longer one reads so many times those of the one before, up to GeneratorOptions::chunk.
constexpr std::int64_t kSmallestRows = 32, kNextRows = 4;

GeneratorOptions checked(GeneratorOptions o) {
  constexpr std::int64_t longest = 1 << 30;  // positions are 32-bit numbers
  if (o.context < 1 || o.context > longest || o.chunk < 1 || o.chunk > 1 << 16)
    fail(ErrorCode::InvalidArgument, "a generator with a context of {} in chunks of {}", o.context, o.chunk);
  if (o.sequences < 1 || o.repetition_window < 1)
    fail(ErrorCode::InvalidArgument, "a generator for {} sequences with a repetition window of {}", o.sequences,
         o.repetition_window);
  o.chunk = std::min(o.chunk, o.context);
  return o;
}

/// Row `i` of x [rows, B], as [B].
Value row_of(Value x, std::int64_t i) { return reshape(slice(x, {0}, {i}, {i + 1}), {x.shape()[1]}); }

/// x [B] as [B, 1].
Value column(Value x) { return reshape(x, {x.shape()[0], 1}); }

}  // namespace

Decoder::Decoder(LanguageModel model, const GeneratorOptions& options)
    : model_(std::move(model)),
      options_(checked(options)),
      weights_(options_.device ? *options_.device : Device{}),  // value_or would open another one
      greedy_{compile_decode(false), {}, {}, {}, {}} {
  load_weights(model_, weights_);
}

// ---- graphs

Session Decoder::compile_read(std::int64_t rows) {
  Graph graph;
  const Value ids = graph.input("ids", {1, rows}, DType::i32);
  const Value where = graph.input("where", {3}, DType::i32);  // sequence, position, ids that count
  const auto part = [&](std::int64_t i) { return slice(where, {0}, {i}, {i + 1}); };
  const Value next = graph.state("generation.position", {options_.sequences}, DType::i32);
  models::LlamaDecode decode{.position = part(1), .capacity = capacity()};
  if (options_.sequences > 1) decode.slot = {part(0), next};
  models::llama_decode(ids, decode, model_.config());  // for what it leaves in the caches
  const Value own = equal(iota(graph, {options_.sequences}, 0), part(0));
  graph.assign(next, select(own, part(1) + part(2), next));
  return compile(graph, weights_);
}

Session Decoder::compile_decode(bool sampled) {
  const std::int64_t batch = options_.sequences, vocab = model_.config().vocab;
  Graph graph;
  const Value last_token = graph.state("generation.token", {batch}, DType::i32);
  const Value last_position = graph.state("generation.position", {batch}, DType::i32);
  // Where the host names a token, a sequence goes on from there; elsewhere from where the step before has left it.
  const Value control = graph.input("control", {3, batch}, DType::i32);  // token or -1, position, active
  const Value named = greater_equal(row_of(control, 0), 0);
  const Value token = select(named, row_of(control, 0), last_token);
  const Value position = select(named, row_of(control, 1), last_position);

  const models::LlamaDecode decode{.position = position, .capacity = capacity()};
  const Value logits = reshape(models::llama_decode(column(token), decode, model_.config()), {batch, vocab});
  Value next;
  if (sampled) {
    const std::int64_t window = options_.repetition_window;
    // The last ids of each sequence: slot i holds the latest one at a position that is i modulo the window.
    const Value recent = graph.state("generation.recent", {batch, window}, DType::i32);
    const Value slot = iota(graph, {batch, window}, 1);
    const Value before = select(column(named), graph.input("recent", {batch, window}, DType::i32), recent);
    const Value now = select(equal(slot, mod(column(position), window)), column(token), before);
    graph.assign(recent, now);
    const Value numbers = graph.input("numbers", {4, batch});                // penalty, temperature, top_p, min_p
    const Value integers = graph.input("integers", {4, batch}, DType::i32);  // top_k, window, seed low and high
    const Value count = position + 1;
    const Value age = mod(column(position) - slot, window);
    const Value seen = less(age, column(minimum(row_of(integers, 1), count)));
    next = nn::sample(logits, {.repetition_penalty = row_of(numbers, 0),
                               .recent = select(seen, now, -1),
                               .temperature = row_of(numbers, 1),
                               .top_k = row_of(integers, 0),
                               .top_p = row_of(numbers, 2),
                               .min_p = row_of(numbers, 3),
                               .seed = transpose(slice(integers, {0}, {2}, {4})),
                               .draw = count});
  } else {
    next = nn::most_likely(logits);
    graph.output("logits", logits);
  }
  graph.output("next", next);
  graph.assign(last_token, maximum(next, 0));  // a token, whatever happens
  graph.assign(last_position, minimum(position + row_of(control, 2), options_.context));
  return compile(graph, weights_);
}

// ---- steps

template <class T>
void Decoder::set(Session& session, std::string_view input, std::vector<T>& held, const std::vector<T>& wanted) {
  if (held == wanted) return;
  session.set(input, std::span<const T>(wanted));
  held = wanted;
}

Session& Decoder::reading(std::int64_t rows) {
  const auto found = reading_.find(rows);
  return found != reading_.end() ? found->second : reading_.emplace(rows, compile_read(rows)).first->second;
}

Decoder::Plan& Decoder::sampled() {
  if (!sampled_) sampled_.emplace(compile_decode(true));
  return *sampled_;
}

void Decoder::prepare_all() {
  for (std::int64_t rows = smallest_rows();; rows = std::min(rows * kNextRows, options_.chunk)) {
    reading(rows);
    if (rows == options_.chunk) break;
  }
  sampled();
}

void Decoder::prepare_for(std::size_t held, std::size_t ids, bool samples) {
  const auto count = static_cast<std::int64_t>(ids) - 1;  // a decode step reads the last one
  for (auto at = static_cast<std::int64_t>(held); at < count;) {
    const std::int64_t rows = reading_rows(at, count - at);
    reading(rows);
    at += rows;
  }
  if (samples) sampled();
}

std::int64_t Decoder::smallest_rows() const { return std::min(kSmallestRows, options_.chunk); }

std::int64_t Decoder::reading_rows(std::int64_t position, std::int64_t ids) const {
  std::int64_t rows = smallest_rows();
  while (2 * rows < ids && rows < options_.chunk) {  // two of these are no slower than one of the next size
    const std::int64_t next = std::min(rows * kNextRows, options_.chunk);
    if (position + next > capacity()) break;
    rows = next;
  }
  return rows;
}

std::size_t Decoder::read(std::size_t sequence, std::size_t position, std::span<const std::int32_t> ids) {
  const std::int64_t rows = reading_rows(static_cast<std::int64_t>(position), static_cast<std::int64_t>(ids.size()));
  Session& session = reading(rows);
  const std::size_t count = std::min(ids.size(), static_cast<std::size_t>(rows));
  // Rows behind the last id that counts may hold anything.
  chunk_.assign(static_cast<std::size_t>(rows), ids.front());
  std::ranges::copy(ids.first(count), chunk_.begin());
  const std::int32_t where[] = {static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(position),
                                static_cast<std::int32_t>(count)};
  session.set("ids", chunk_);
  session.set("where", where);
  session.step();
  return count;
}

void Decoder::step(std::span<const DecodeRow> rows) {
  const bool samples = std::ranges::any_of(rows, [](const DecodeRow& row) { return row.sampling != nullptr; });
  Plan& plan = samples ? sampled() : greedy_;
  const std::size_t batch = rows.size();
  control_.assign(3 * batch, 0);
  for (std::size_t b = 0; b < batch; ++b) {
    const std::span<const std::int32_t> start = rows[b].start;
    control_[b] = start.empty() ? -1 : start.back();
    control_[batch + b] = start.empty() ? 0 : static_cast<std::int32_t>(start.size() - 1);
    control_[2 * batch + b] = rows[b].active ? 1 : 0;
  }
  set(plan.session, "control", plan.control, control_);
  if (samples) set_sampling(plan, rows);
  plan.session.step();
  pending_.push_back(&plan);
}

void Decoder::set_sampling(Plan& plan, std::span<const DecodeRow> rows) {
  const std::size_t batch = rows.size(), window = static_cast<std::size_t>(options_.repetition_window);
  recent_ = plan.recent;
  recent_.resize(batch * window);
  numbers_.assign(4 * batch, 0);
  integers_.assign(4 * batch, 0);
  for (std::size_t b = 0; b < batch; ++b) {
    static const SamplingOptions greedy;
    const SamplingOptions& o = rows[b].sampling != nullptr ? *rows[b].sampling : greedy;
    numbers_[b] = static_cast<float>(o.repetition_penalty);
    // Not so low that it becomes 0 on a device.
    numbers_[batch + b] = o.temperature > 0 ? std::max(static_cast<float>(o.temperature), 1e-30f) : 0;
    numbers_[2 * batch + b] = static_cast<float>(o.top_p);
    numbers_[3 * batch + b] = static_cast<float>(o.min_p);
    integers_[b] = static_cast<std::int32_t>(std::min(o.top_k, model_.config().vocab));
    integers_[batch + b] = static_cast<std::int32_t>(std::min(o.repetition_window, options_.repetition_window));
    integers_[2 * batch + b] = static_cast<std::int32_t>(o.seed);
    integers_[3 * batch + b] = static_cast<std::int32_t>(o.seed >> 32);
    const std::span<const std::int32_t> start = rows[b].start;
    for (std::size_t i = start.size() - std::min(start.size(), window); i < start.size(); ++i)
      recent_[b * window + i % window] = start[i];
  }
  set(plan.session, "recent", plan.recent, recent_);
  set(plan.session, "numbers", plan.numbers, numbers_);
  set(plan.session, "integers", plan.integers, integers_);
}

std::span<const std::int32_t> Decoder::take() {
  AESHNA_CHECK(!pending_.empty() && pending_.size() <= 2);
  Plan& plan = *pending_.front();
  pending_.pop_front();
  const bool last = pending_.empty() || pending_.front() != &plan;
  const Literal ids = last ? plan.session.read_literal("next") : plan.session.read_previous("next");
  ids_.resize(ids.bytes().size() / sizeof(std::int32_t));
  std::memcpy(ids_.data(), ids.bytes().data(), ids.bytes().size());
  return ids_;
}

std::vector<float> Decoder::logits(std::size_t sequence) {
  const std::vector<float> all = greedy_.session.read("logits");
  const auto vocab = static_cast<std::ptrdiff_t>(model_.config().vocab);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(sequence) * vocab;
  return {first, first + vocab};
}

}  // namespace aeshna
