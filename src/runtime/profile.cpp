#include "runtime/profile.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "aeshna/ops.h"
#include "base/fail.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Runs steps of a session in three ways: as it is, with timestamps around all of it, with timestamps around each command.
class Profiler {
 public:
  explicit Profiler(Session& session) : impl_(session.impl()) {
    const std::uint32_t slots = impl_.device().timestamp_slots();
    if (slots < 2) fail(ErrorCode::Unsupported, "[profile] device {} has no timestamps", impl_.device().info().name);
    most_ = slots / 2;
  }

  void warm_up(double seconds) {
    const Clock::time_point start = Clock::now();
    do {
      step(impl_.segments);
    } while (seconds_since(start) < seconds);
  }

  std::vector<double> wall_ms(double seconds) {
    std::vector<double> samples;
    const Clock::time_point start = Clock::now();
    while (samples.size() < 3 || (samples.size() < 100 && seconds_since(start) < seconds)) {
      const Clock::time_point before = Clock::now();
      step(impl_.segments);
      samples.push_back(seconds_since(before) * 1e3);
    }
    return samples;
  }

  /// Of the ordinary lists, one timestamp before the first and one after the last.
  double device_ms(double seconds) {
    const Chunk first = stamp(0), last = stamp(1);
    std::vector<double> samples;
    const Clock::time_point start = Clock::now();
    while (samples.size() < 3 || (samples.size() < 100 && seconds_since(start) < seconds)) {
      Segments lists = impl_.segments;
      const std::array<bool, 3> runs = impl_.segments_of(Session::Impl::Pass::Step);
      lists[0].insert(lists[0].begin(), first);
      lists[runs[2] ? 2 : runs[1] ? 1 : 0].push_back(last);
      step(lists);
      samples.push_back(impl_.device().timestamps(2)[1] * 1e-6);
    }
    return median(std::move(samples));
  }

  /// Microseconds of every command, in the order of the plan: `repeats` or more of each.
  std::vector<std::vector<double>> command_us(std::uint32_t repeats) {
    std::array<std::vector<SegmentCommand>, 3> commands;
    std::size_t count = 0;
    for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update}) {
      commands[static_cast<std::size_t>(segment)] = segment_commands(impl_, segment);
      count += commands[static_cast<std::size_t>(segment)].size();
    }
    std::vector<std::vector<double>> samples(count);
    for (std::size_t begin = 0; begin < count; begin += most_) time_window(commands, begin, repeats, samples);
    return samples;
  }

 private:
  void step(const Segments& lists) const {
    impl_.run(Session::Impl::Pass::Step, lists);
    impl_.wait();
  }

  Chunk stamp(std::uint32_t slot) const {
    const gpu::Command command[] = {gpu::TimestampCommand{slot}};
    return {impl_.device().record(command, {}, "timestamp"), 0};
  }

  /// Times the commands from number `begin` on, as many as the device has slots for; the others run without timestamps.
  void time_window(std::array<std::vector<SegmentCommand>, 3>& commands, std::size_t begin, std::uint32_t repeats,
                   std::vector<std::vector<double>>& samples) const {
    Segments lists;
    std::array<std::size_t, 3> stamped{};  // commands, by segment
    std::size_t number = 0, used = 0;
    for (std::size_t s = 0; s < commands.size(); ++s) {
      for (SegmentCommand& command : commands[s]) {
        command.group = static_cast<std::uint32_t>(number);  // a barrier group of its own
        command.stamp.reset();
        if (number >= begin && used < most_) {
          command.stamp = static_cast<std::uint32_t>(2 * used++);
          ++stamped[s];
        }
        ++number;
      }
      lists[s] = record_commands(impl_, commands[s], "profile");
    }
    const std::uint32_t micro_steps = impl_.training() && impl_.options.update ? impl_.options.train.accumulate : 1;
    for (std::uint32_t i = 0; i < repeats * micro_steps; ++i) {
      const std::array<bool, 3> runs = impl_.segments_of(Session::Impl::Pass::Step);
      std::size_t written = 0;
      for (std::size_t s = 0; s < runs.size(); ++s) written += runs[s] ? stamped[s] : 0;
      step(lists);
      const std::vector<double> ns = impl_.device().timestamps(static_cast<std::uint32_t>(2 * written));
      for (std::size_t k = 0; k < written; ++k) samples[begin + k].push_back((ns[2 * k + 1] - ns[2 * k]) * 1e-3);
    }
  }

  Session::Impl& impl_;
  std::uint32_t most_ = 0;  ///< commands between timestamps, at once
};

/// A session on a graph of its own, warm.
class Probe {
 public:
  Probe(const Device& device, const Graph& graph, CompileOptions options)
      : weights_(graph, {.device = device}), session_(compile(graph, weights_, std::move(options))) {}
  Session& session() { return session_; }

  double device_us() {
    Profiler profiler(session_);
    profiler.warm_up(kWarm);
    return profiler.device_ms(kWarm) * 1e3;
  }
  /// The shortest time of its longest command: a ceiling is what is reached at best.
  double command_us() {
    Profiler profiler(session_);
    profiler.warm_up(kWarm);
    double longest = 0;
    for (const std::vector<double>& samples : profiler.command_us(kRepeats))
      longest = std::max(longest, std::ranges::min(samples));
    return longest;
  }

 private:
  static constexpr double kWarm = 0.1;
  static constexpr std::uint32_t kRepeats = 10;
  Weights weights_;
  Session session_;
};

double measure_bandwidth(const Device& device) {
  const Caps& caps = device.impl().caps();
  // Larger than any cache, as far as the device allows.
  const std::uint64_t allowed = std::min({caps.max_buffer_size, caps.max_storage_range, caps.device_memory / 16});
  const auto wanted =
      static_cast<std::uint64_t>(std::clamp(caps.gbytes_per_s * 1e6, 32.0 * (1 << 20), 256.0 * (1 << 20)));
  const auto elements = static_cast<std::int64_t>(std::min(allowed, wanted) / 1024 * 256);
  Graph graph;
  graph.output("y", graph.parameter("x", {elements}, {.init = Init::zeros()}) + 1.0);
  return 8.0 * static_cast<double>(elements) / Probe(device, graph, {}).command_us() * 1e6;
}

double measure_product(const Device& device, Contract contract) {
  const Caps& caps = device.impl().caps();
  const double side = std::cbrt(caps.gflops * 5e6 / 2);  // about 5 ms
  const std::int64_t n = std::clamp(static_cast<std::int64_t>(side) / 128 * 128, std::int64_t{256}, std::int64_t{4096});
  Graph graph;
  graph.output("c", matmul(graph.input("a", {n, n}), graph.input("b", {n, n})));
  Probe probe(device, graph, {.contract = contract});
  std::vector<float> values(static_cast<std::size_t>(n * n));  // not zeros: multiplying those takes less power
  std::uint32_t state = 1;
  for (float& value : values)
    value = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f;
  for (const char* name : {"a", "b"}) probe.session().set(name, values);
  const auto side_of = static_cast<double>(n);
  return 2 * side_of * side_of * side_of / probe.command_us() * 1e6;
}

}  // namespace

double ProfileRow::bound_us(const Ceilings& c) const {
  const double traffic = c.bytes_per_s > 0 ? bytes / c.bytes_per_s : 0;
  const double arithmetic = peak(c) > 0 ? flop / peak(c) : 0;
  return std::max(traffic, arithmetic) * 1e6;
}

double Profile::sum_us() const {
  double sum = 0;
  for (const ProfileRow& row : rows) sum += row.us;
  return sum;
}

std::string pattern_key(const ProfileRow& row) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(row.segment)));
  for (const std::string* part : {&row.family, &row.variant, &row.shape, &row.nodes}) (key += '\n') += *part;
  return key;
}

std::vector<ProfilePattern> group_rows(const Profile& profile, std::string (*key)(const ProfileRow&)) {
  std::map<std::string, ProfilePattern> patterns;
  for (std::uint32_t i = 0; i < profile.rows.size(); ++i) {
    const ProfileRow& row = profile.rows[i];
    ProfilePattern& pattern = patterns[key(row)];
    pattern.rows.push_back(i);
    pattern.us += row.us;
    pattern.bound_us += row.bound_us(profile.ceilings);
    pattern.bytes += row.bytes;
    pattern.flop += row.flop;
  }
  std::vector<ProfilePattern> result;
  for (auto& [name, pattern] : patterns) result.push_back(std::move(pattern));
  std::ranges::sort(result, std::greater(), [](const ProfilePattern& p) { return p.excess_us(); });
  return result;
}

Ceilings measure_ceilings(const Device& device, Contract contract) {
  Ceilings ceilings;
  ceilings.bytes_per_s = measure_bandwidth(device);
  ceilings.flop_per_s = ceilings.contract_flop_per_s = measure_product(device, Contract::Strict);
  if (contract != Contract::Strict) ceilings.contract_flop_per_s = measure_product(device, contract);

  constexpr int kChain = 64;
  Graph graph;
  Value x = graph.parameter("x", {1});
  for (int i = 0; i < kChain; ++i) x = tanh(x);
  graph.output("y", x);
  Probe probe(device, graph, {.fusion = false});
  ceilings.dependent_dispatch_us = probe.device_us() / kChain;
  ceilings.dispatch_us = probe.command_us();
  return ceilings;
}

Profile profile(Session& session, const ProfileOptions& options) {
  Profiler profiler(session);
  Profile result;
  result.rows = profile_rows(session.impl());
  result.repeats = std::max(options.repeats, 1u);
  for (std::size_t i = 1; i < result.rows.size(); ++i)
    result.barriers += result.rows[i].group != result.rows[i - 1].group;
  if (options.ceilings) result.ceilings = measure_ceilings(session.weights().device(), session.impl().options.contract);

  profiler.warm_up(options.warm_seconds);
  result.wall_ms = profiler.wall_ms(options.wall_seconds);
  result.wall_median_ms = median(result.wall_ms);
  result.device_ms = profiler.device_ms(options.wall_seconds / 2);
  const std::vector<std::vector<double>> samples = profiler.command_us(result.repeats);
  AESHNA_CHECK(samples.size() == result.rows.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    result.rows[i].us = median(samples[i]);
    result.rows[i].min_us = std::ranges::min(samples[i]);
  }
  return result;
}

}  // namespace aeshna
