#include "bench/workload_values.h"

#include <charconv>
#include <system_error>

#include "base/fail.h"
#include "base/sha.h"
#include "io/safetensors.h"
#include "ir/leaf.h"
#include "runtime/store.h"

namespace aeshna::bench {
namespace {

std::string metadata(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    fail(ErrorCode::CorruptFile, "{}: no data of a workload: its metadata have no '{}'", file.name(), key);
  return found->second;
}

std::string bytes_differ(const TensorType& wanted, const TensorType& found) {
  return formatted("is {}, the data have {}", wanted.to_string(), found.to_string());
}

}  // namespace

std::string_view config_name(const models::Workload& workload) { return workload.small ? "small" : "full"; }

WorkloadValues::WorkloadValues(const models::Workload& workload, std::uint64_t seed) : seed_(seed) {
  const auto all = std::make_shared<std::map<std::string, Literal>>(models::workload_data(workload, seed));
  get_ = [all](const std::string& name) {
    const auto found = all->find(name);
    if (found == all->end()) fail(ErrorCode::NotFound, "the data have no '{}'", name);
    return found->second;
  };
}

WorkloadValues::WorkloadValues(const models::Workload& workload, const std::filesystem::path& path) {
  const auto file = std::make_shared<SafetensorsFile>(path);
  const std::string name = metadata(*file, "workload"), config = metadata(*file, "config"),
                    seed = metadata(*file, "seed");
  if (name != workload.name || config != config_name(workload))
    fail(ErrorCode::InvalidArgument, "{} holds the data of {} ({}), not of {} ({})", file->name(), name, config,
         workload.name, config_name(workload));
  const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), seed_);
  if (error != std::errc() || end != seed.data() + seed.size())
    fail(ErrorCode::CorruptFile, "{}: the metadata's seed '{}' is no number", file->name(), seed);
  sha256_ = sha256_file(path);
  get_ = [file](const std::string& tensor) { return file->literal(tensor); };
}

void add_parameters(const Weights& weights, const Graph& graph, const WorkloadValues& values) {
  for (const Node& node : graph.nodes()) {
    if (!is_parameter(node) || weights.contains(node.name)) continue;
    const Literal value = values.get(node.name);  // one at a time: all of them are half a gigabyte
    if (value.type() != node.results[0])
      fail(ErrorCode::ShapeMismatch, "parameter '{}' {}", node.name, bytes_differ(node.results[0], value.type()));
    const Weights::Impl::NewTensor tensor{.name = node.name, .parameter = true, .type = value.type(), .value = value};
    weights.impl().create(std::span(&tensor, 1));
  }
}

void set_inputs(Session& session, const WorkloadValues& values) {
  for (const Node& node : session.graph().nodes()) {
    if (!is_input(node)) continue;
    const TensorType& type = node.results[0];
    const Literal value = values.get("input/" + node.name);
    if (value.type().dtype != type.dtype || value.bytes().size() < static_cast<std::size_t>(type.bytes()))
      fail(ErrorCode::ShapeMismatch, "input '{}' {}", node.name, bytes_differ(type, value.type()));
    const std::span<const std::byte> bytes = value.bytes().first(static_cast<std::size_t>(type.bytes()));
    session.set(node.name, Literal(type, {bytes.begin(), bytes.end()}));
  }
}

std::uint64_t write_data(const models::Workload& workload, std::uint64_t seed, const std::filesystem::path& path) {
  const std::map<std::string, Literal> data = models::workload_data(workload, seed);
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, value] : data) tensors.push_back({name, value.type(), value.bytes()});
  write_safetensors(
      path, tensors,
      {{"workload", workload.name}, {"config", std::string(config_name(workload))}, {"seed", std::to_string(seed)}});
  std::error_code unseen;
  return std::filesystem::file_size(path, unseen);
}

}  // namespace aeshna::bench
