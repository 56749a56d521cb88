#pragma once
#include <filesystem>

#include "aeshna/graph.h"

namespace aeshna::cli {

/// Fills an empty graph from a file of its text form (docs/graph-text.md); errors name the file.
void read_graph(const std::filesystem::path& path, Graph& graph);

}  // namespace aeshna::cli
