// aeshna ops: the vocabulary, as docs/ops.md.
#include <cstdio>

#include "cli/command.h"
#include "ops/document.h"

namespace aeshna::cli {

void add_ops(CLI::App& app, const Globals&, Action& action) {
  CLI::App* command = app.add_subcommand("ops", "List the ops as a Markdown table");
  command->callback([&action] {
    action = [] {
      std::fputs(ops_markdown().c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace aeshna::cli
