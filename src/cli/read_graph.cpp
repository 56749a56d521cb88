#include "cli/read_graph.h"

#include "aeshna/error.h"
#include "base/byte_reader.h"

namespace aeshna::cli {

void read_graph(const std::filesystem::path& path, Graph& graph) {
  constexpr std::uint64_t kMaxBytes = 1ull << 30;
  const std::vector<std::byte> bytes = read_file(path, kMaxBytes);
  try {
    parse_graph({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, graph);
  } catch (Error& error) {
    throw error.context(path.string());
  }
}

}  // namespace aeshna::cli
