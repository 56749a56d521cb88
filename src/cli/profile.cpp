// aeshna profile: where the time of a workload's step goes, dispatch by dispatch.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/byte_reader.h"
#include "base/fail.h"
#include "base/format.h"
#include "bench/workload_values.h"
#include "cli/command.h"
#include "cli/profile_report.h"
#include "cli/read_graph.h"
#include "cli/text.h"
#include "gpu/device.h"
#include "ir/leaf.h"
#include "nn/models/workloads.h"

namespace aeshna::cli {
namespace {

using models::Phase;
using models::Workload;

struct ProfileArguments {
  std::string workload, graph, data, json, trace, phase = "full", contract = "strict";
  bool small = false;
  std::size_t top = 20;
  std::uint32_t repeat = 5;
};

/// For graphs that come without values: floats in [-1, 1), other numbers 0, which are indices into anything.
Literal any_values(const TensorType& type) {
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  std::uint32_t state = 1;
  if (is_float(type.dtype)) {
    for (double& value : values) value = ((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23 - 1;
  }
  return Literal::from_doubles(type, values);
}

void set_any_inputs(Session& session) {
  for (const Node& node : session.graph().nodes()) {
    if (is_input(node)) session.set(node.name, any_values(node.results[0]));
  }
}

/// The workload's graph, or that of a file (then null).
const Workload* build_graph(const ProfileArguments& arguments, Graph& graph) {
  if (arguments.workload.empty() == arguments.graph.empty())
    wrong_arguments("profile takes a workload or --graph FILE");
  if (!arguments.graph.empty() && !arguments.data.empty())
    wrong_arguments("--data are a workload's; a graph's weights and inputs are made up");
  if (!arguments.graph.empty()) {
    read_graph(arguments.graph, graph);
    return nullptr;
  }
  const Workload& workload = models::find_workload(arguments.workload, arguments.small);
  const Phase phase = arguments.phase == "full"      ? Phase::Full
                      : arguments.phase == "minimal" ? Phase::Minimal
                                                     : Phase::Train;
  workload.build(graph, phase, arguments.small, workload.batch);
  return &workload;
}

int profile_command(const ProfileArguments& arguments, const Globals& globals) {
  ProgressLine progress(!globals.quiet);
  Graph graph;
  const Workload* workload = build_graph(arguments, graph);
  const Device device(globals.request());
  if (device.impl().timestamp_slots() == 0)  // before a minute of preparation
    fail(ErrorCode::Unsupported, "[profile] device {} has no timestamps", device.info().name);

  progress.show("weights and inputs");
  std::optional<bench::WorkloadValues> values;
  if (workload && arguments.data.empty()) values.emplace(*workload, 1);
  if (workload && !arguments.data.empty()) values.emplace(*workload, std::filesystem::path(arguments.data));
  const Weights weights(device, 1);
  if (values) bench::add_parameters(weights, graph, *values);
  progress.show("compiling");
  CompileOptions options;
  if (arguments.contract == "accelerated") options.contract = Contract::Accelerated;
  if (arguments.phase == "train") options.mode = Mode::Training;
  options.update = false;
  Session session = compile(graph, weights, options);
  if (values) {
    bench::set_inputs(session, *values);
    values.reset();
  } else {
    set_any_inputs(session);
  }
  progress.show("profiling");
  const Profile result = profile(session, {.repeats = arguments.repeat});
  progress.clear();

  ProfileSubject subject{arguments.graph, arguments.phase, arguments.contract, device.info().name};
  if (workload) subject.name = workload->title + (workload->small ? " (small)" : "");
  if (!arguments.json.empty()) write_file_atomic(arguments.json, profile_json(result, subject));
  if (!arguments.trace.empty()) write_file_atomic(arguments.trace, profile_trace(result, subject));
  std::fputs(profile_text(result, subject, arguments.top).c_str(), stdout);
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command =
      app.add_subcommand("profile", "Time each dispatch of a workload's step, and what it could take at best");
  auto arguments = std::make_shared<ProfileArguments>();
  command->add_option("workload", arguments->workload, "smollm2, smolvla, unet, resnet50 or whisper")
      ->check(CLI::IsMember({"smollm2", "smolvla", "unet", "resnet50", "whisper"}))
      ->type_name("WORKLOAD");
  command
      ->add_option("--graph", arguments->graph, "Text graph instead of a workload; --phase train needs a scalar output")
      ->type_name("FILE");
  command->add_option("--phase", arguments->phase, "full, minimal (inference) or train (loss and gradients)")
      ->check(CLI::IsMember({"full", "minimal", "train"}))
      ->capture_default_str();
  command->add_option("--contract", arguments->contract, "strict, or accelerated: 16-bit inputs of forward products")
      ->check(CLI::IsMember({"strict", "accelerated"}))
      ->capture_default_str();
  command->add_flag("--small", arguments->small, "The small configuration");
  command->add_option("--data", arguments->data, "Weights and inputs, from 'aeshna bench data' (default: made here)")
      ->type_name("FILE");
  command->add_option("--json", arguments->json, "Write everything measured")->type_name("FILE");
  command->add_option("--trace", arguments->trace, "Write a trace for ui.perfetto.dev")->type_name("FILE");
  command->add_option("--top", arguments->top, "Lines of each table")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--repeat", arguments->repeat, "Times of each dispatch")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->callback([&globals, &action, arguments] {
    action = [&globals, arguments] { return profile_command(*arguments, globals); };
  });
}

}  // namespace aeshna::cli
