// aeshna dump: what the compiler makes of a graph, after any of its stages.
#include <cstdio>

#include "base/fail.h"
#include "cli/classifier.h"
#include "cli/command.h"
#include "cli/read_graph.h"
#include "cli/text.h"
#include "compile/pipeline.h"
#include "gpu/device.h"

namespace aeshna::cli {
namespace {

struct DumpArguments {
  std::string stage = "plan";
  std::string graph;
  std::int64_t batch = 50;
  bool train = false;
  bool no_fusion = false;
  bool no_aliasing = false;
};

std::string list_stages() {
  std::vector<std::vector<std::string>> rows;
  for (const Stage& stage : stages()) rows.push_back({std::string(stage.name), std::string(stage.doc)});
  return format_table(rows);
}

/// The graph in the file, or the model of `aeshna train digits`.
void load_graph(const DumpArguments& arguments, Graph& graph) {
  if (arguments.graph.empty()) {
    build_classifier(graph, {}, arguments.batch, arguments.train);
    return;
  }
  read_graph(arguments.graph, graph);
}

int dump(const DumpArguments& arguments, const Globals& globals) {
  if (arguments.stage == "list") {
    std::fputs(list_stages().c_str(), stdout);
    return 0;
  }
  Graph graph;
  load_graph(arguments, graph);
  PipelineOptions options;
  options.training = arguments.train;
  options.fusion = !arguments.no_fusion;
  options.aliasing = !arguments.no_aliasing;
  if (arguments.train) options.optimizer = AdamW{};
  const Device device(globals.request());
  const std::string text = dump_stage(graph, options, device.impl().caps(), arguments.stage);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void add_dump(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* command =
      app.add_subcommand("dump", "Print the graph, the kernels or the plan after a stage of the compiler");
  auto arguments = std::make_shared<DumpArguments>();
  std::vector<std::string> names = {"list"};
  for (const Stage& stage : stages()) names.emplace_back(stage.name);
  command->add_option("--stage", arguments->stage, "Stage, or 'list' for their names")
      ->check(CLI::IsMember(names))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--graph", arguments->graph, "Text graph (default: the model of 'aeshna train digits')")
      ->type_name("FILE");
  command->add_option("--batch", arguments->batch, "Batch size of the default model")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--train", arguments->train,
                    "With gradients and AdamW updates; a graph in a file needs a scalar output, the loss");
  command->add_flag("--no-fusion", arguments->no_fusion, "Every node a kernel of its own");
  command->add_flag("--no-aliasing", arguments->no_aliasing, "Every tensor in memory of its own");
  command->callback(
      [&globals, &action, arguments] { action = [&globals, arguments] { return dump(*arguments, globals); }; });
}

}  // namespace aeshna::cli
