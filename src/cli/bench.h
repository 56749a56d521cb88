#pragma once
// `aeshna bench`: options of its subcommands; what they do is in src/bench.
#include "cli/command.h"

namespace aeshna::cli {

/// The subcommands `data` and `run`. (bench_run.cpp)
void add_bench_data(CLI::App& bench, Action& action);
void add_bench_run(CLI::App& bench, const Globals& globals, Action& action);

}  // namespace aeshna::cli
