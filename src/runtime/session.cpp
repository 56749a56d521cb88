// The public calls of a session, and its checkpoints.
#include "aeshna/session.h"

#include <chrono>
#include <cmath>
#include <set>

#include "base/env.h"
#include "base/fail.h"
#include "compile/reserved.h"
#include "ir/leaf.h"
#include "ir/rebuild.h"
#include "runtime/checkpoint.h"
#include "runtime/session_impl.h"

namespace aeshna {
namespace {

PipelineOptions pipeline_options(const CompileOptions& options) {
  PipelineOptions result;
  result.training = options.mode == Mode::Training;
  result.loss = options.loss;
  result.gradients = options.gradients;
  if (options.update) result.optimizer = options.optimizer;
  result.train = options.train;
  result.fusion = options.fusion;
  result.aliasing = options.aliasing;
  result.tiny_tiles = options.tiny_tiles;
  return result;
}

/// Runs `stage` and notes how long it took.
template <class F>
void timed(std::vector<Session::StageSeconds>& times, std::string stage, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  times.push_back({std::move(stage), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
}

/// Tensors of a checkpoint of this session, by role.
struct CheckpointTensors {
  std::vector<std::string> parameters;
  std::vector<std::string> user_states;   ///< running statistics, counters: part of the model
  std::vector<std::string> train_states;  ///< moments, step, seed
  std::vector<std::string> accumulating;  ///< what lives from one micro-step to the next
};

CheckpointTensors checkpoint_tensors(const Session::Impl& session) {
  CheckpointTensors result;
  std::set<std::string_view> seen;
  for (const Graph* graph : {static_cast<const Graph*>(session.graph.get()), session.plan.graph.get()}) {
    for (const Node& node : graph->nodes()) {
      if ((!is_parameter(node) && !is_state(node)) || node.name == reserved::status || !seen.insert(node.name).second)
        continue;
      if (is_parameter(node)) {
        result.parameters.push_back(node.name);
      } else if (node.name == reserved::bad || node.name.starts_with(reserved::accumulator)) {
        result.accumulating.push_back(node.name);
      } else if (node.name.starts_with(reserved::prefix)) {
        result.train_states.push_back(node.name);
      } else {
        result.user_states.push_back(node.name);
      }
    }
  }
  return result;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Session::Impl::Impl(const Graph& user_graph, const Weights& shared_weights, CompileOptions compile_options)
    : options(std::move(compile_options)), weights(shared_weights) {
  if (training() && options.update && !options.optimizer) options.optimizer = Adam{};
  if (!(options.chunk_ms > 0))
    fail(ErrorCode::InvalidArgument, "[compile] chunk_ms must be > 0, found {}", options.chunk_ms);
  graph = clone(user_graph);
  plan = compile_plan(*graph, pipeline_options(options), device().caps());
  for (const StageTime& time : plan.times) times.push_back({time.stage, time.milliseconds / 1000});
  timed(times, "weights", [&] {
    weights.add(*graph);
    weights.add(*plan.graph);
  });
  timed(times, "buffers", [&] { build(); });
  timed(times, "kernels", [&] { kernels = weights.impl().kernels->get(device(), plan, env_threads()); });
  timed(times, "record", [&] { record(); });
  resync();
}

Session::Impl::~Impl() {
  // Buffers and lists go only after the device has finished with them; a lost device has.
  try {
    for (const Slot& slot : slots) {
      if (slot.pending) device().wait(slot.ticket);
    }
  } catch (const Error&) {}
}

std::string Session::Impl::optimizer_name() const {
  if (!training() || !options.update) return "";
  struct Names {
    std::string operator()(const Sgd&) const { return "sgd"; }
    std::string operator()(const Adam&) const { return "adam"; }
    std::string operator()(const AdamW&) const { return "adamw"; }
    std::string operator()(const LaProp&) const { return "laprop"; }
  };
  return std::visit(Names{}, *options.optimizer);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Session compile(const Graph& graph, const Weights& weights, CompileOptions options) {
  return Session(std::make_unique<Session::Impl>(graph, weights, std::move(options)));
}

void Session::set(std::string_view input, std::span<const float> values) {
  impl_->write_input(impl_->input(input), DType::f32, values.size(), std::as_bytes(values));
}

void Session::set(std::string_view input, std::span<const std::int32_t> values) {
  impl_->write_input(impl_->input(input), DType::i32, values.size(), std::as_bytes(values));
}

void Session::set(std::string_view name, const Literal& value) {
  SessionInput& input = impl_->input(name);
  if (value.type() != input.type) {
    fail(value.type().dtype != input.type.dtype ? ErrorCode::DTypeMismatch : ErrorCode::ShapeMismatch,
         "input '{}' expects {}, found a value of type {}", name, input.type.to_string(), value.type().to_string());
  }
  impl_->write_input(input, value.type().dtype, static_cast<std::uint64_t>(value.type().shape.elements()),
                     value.bytes());
}

void Session::step() { impl_->run(Impl::Pass::Step); }
void Session::forward() { impl_->run(Impl::Pass::Forward); }
void Session::wait() { impl_->wait(); }

Literal Session::read_literal(std::string_view output) { return impl_->read_output(output); }

Literal Session::read_previous(std::string_view output) { return impl_->read_previous(output); }

std::vector<float> Session::read(std::string_view output) {
  const Literal value = impl_->read_output(output);
  std::vector<float> result(static_cast<std::size_t>(value.type().shape.elements()));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(value.at(static_cast<std::int64_t>(i)));
  return result;
}

float Session::read_scalar(std::string_view output) {
  const Literal value = impl_->read_output(output);
  if (value.type().shape.elements() != 1) {
    fail(ErrorCode::ShapeMismatch, "output '{}' of type {} is no scalar", output, value.type().to_string());
  }
  return static_cast<float>(value.at(0));
}

std::int64_t Session::steps() const {
  if (!impl_->plan.states.contains(reserved::step)) return 0;
  return static_cast<std::int64_t>(impl_->weights.get(reserved::step).at(0));
}

void Session::set_learning_rate(std::optional<double> lr) {
  if (!impl_->lr) fail(ErrorCode::InvalidArgument, "this session has no learning rate: it makes no updates");
  if (lr && !(std::isfinite(*lr) && *lr >= 0)) {
    fail(ErrorCode::InvalidArgument, "the learning rate must be finite and >= 0, found {}", *lr);
  }
  impl_->fixed_lr = lr;
}

std::string Session::diagnose() { return impl_->diagnose(); }

void Session::save(const std::filesystem::path& file, std::string_view extra) const {
  const CheckpointTensors tensors = checkpoint_tensors(*impl_);
  std::vector<std::string> names = tensors.parameters;
  append(names, tensors.user_states);
  append(names, tensors.train_states);
  if (impl_->micro > 0) append(names, tensors.accumulating);
  CheckpointInfo info;
  info.step = steps();
  info.micro_step = impl_->micro;
  info.seed = impl_->weights.seed();
  info.optimizer = impl_->optimizer_name();
  info.extra = extra;
  write_checkpoint(impl_->weights.impl(), file, names, info);
}

std::string Session::load(const std::filesystem::path& file) {
  const CheckpointTensors tensors = checkpoint_tensors(*impl_);
  CheckpointDemand demand;
  demand.required = tensors.parameters;
  if (impl_->training() && impl_->options.update) {
    append(demand.required, tensors.user_states);
    append(demand.required, tensors.train_states);
    demand.accumulating = tensors.accumulating;
    demand.accumulate = impl_->options.train.accumulate;
    demand.optimizer = impl_->optimizer_name();
  } else {
    demand.optional = tensors.user_states;
    demand.allow_training_state = true;
  }
  const CheckpointInfo info = read_checkpoint(impl_->weights.impl(), file, demand);
  if (demand.optimizer) {
    impl_->update = info.step;
    impl_->micro = static_cast<std::uint32_t>(info.micro_step);
  }
  return info.extra;
}

const Graph& Session::graph() const { return *impl_->graph; }
Weights Session::weights() const { return impl_->weights; }
std::string Session::plan() const { return print_plan(impl_->plan); }

Session::Memory Session::memory() const {
  const MemoryReport& report = impl_->plan.memory;
  return {report.logical_bytes, report.arena_bytes, report.pinned_bytes, report.workspace_bytes};
}

std::vector<Session::StageSeconds> Session::compile_times() const { return impl_->times; }

}  // namespace aeshna
