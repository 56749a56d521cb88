// Files of tensors and of data. What has a writer is written and read again.
#include <cmath>
#include <optional>

#include "aeshna/aeshna.h"
#include "base/byte_reader.h"
#include "base/format.h"
#include "fuzz/target.h"
#include "gpu/device.h"
#include "io/csv.h"
#include "io/datasets.h"
#include "io/gzip.h"
#include "io/idx.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "runtime/checkpoint.h"

namespace aeshna::fuzz {

void read_safetensors(Bytes input) {
  const SafetensorsFile file({input.begin(), input.end()}, "fuzz.safetensors");
  std::vector<Literal> values;
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry& entry : file.tensors()) {
    require(file.find(entry.name) == &entry, "a tensor is not found by its name");
    values.push_back(file.literal(entry.name));
    require(values.back().bytes().size() == entry.end - entry.begin, "a tensor of another length");
    tensors.push_back({entry.name, entry.type, {}});
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = values[i].bytes();

  static const Folder folder("safetensors");
  const auto path = folder / "again.safetensors";
  try {
    write_safetensors(path, tensors, file.metadata());
  } catch (const Error& e) {
    throw Violation(formatted("what was read is not written: {}", e.what()));
  }
  const SafetensorsFile again(path);
  require(again.metadata() == file.metadata(), "other metadata after writing and reading");
  require(again.tensors().size() == tensors.size(), "other tensors after writing and reading");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    require(again.literal(tensors[i].name) == values[i], "another tensor after writing and reading");
}

void read_npy_file(Bytes input) {
  const Literal value = parse_npy(input, "fuzz.npy");
  static const Folder folder("npy");
  try {
    write_npy(folder / "again.npy", value);
  } catch (const Error& e) {
    throw Violation(formatted("what was read is not written: {}", e.what()));
  }
  require(read_npy(folder / "again.npy") == value, "another array after writing and reading");
}

namespace {

/// A model that some of the inputs are checkpoints of.
struct CheckpointModel {
  CheckpointModel() : weights(make(graph), {.seed = 1, .device = Device(gpu::open_null({}))}) {
    session.emplace(compile(graph, weights, {.mode = Mode::Training, .optimizer = Adam{}}));
  }
  static Graph& make(Graph& g) {
    const Value x = g.input("x", {2, 3});
    g.output("loss", mean(mul(linear(x, g.parameter("w", {2, 3}), g.parameter("b", {2})), 2.0), {0, 1}));
    return g;
  }
  Graph graph;
  Weights weights;
  std::optional<Session> session;
};

}  // namespace

void read_checkpoint_file(Bytes input) {
  static const Folder folder("checkpoint");
  static CheckpointModel model;
  const auto path = folder / "fuzz.safetensors";
  folder.put("fuzz.safetensors", input);
  Weights any(Device(gpu::open_null({})));
  Attempts attempts;
  attempts.attempt([&] { (void)read_checkpoint_info(path); });
  attempts.attempt([&] { any.load(path); });
  attempts.attempt([&] { model.weights.load(path); });
  attempts.attempt([&] { (void)model.session->load(path); });
  attempts.finish();
}

void read_data_files(Bytes input) {
  static const Folder folder("data");
  const std::vector<Bytes> parts = parts_of(input);
  Attempts attempts;
  std::vector<std::byte> data(parts[0].begin(), parts[0].end());
  if (is_gzip(data)) data = gunzip(data, "fuzz.data", 1u << 20);
  folder.put("fuzz.data", data);
  folder.put("fuzz.data.labels", parts.size() > 1 ? parts[1] : Bytes());
  if (data.size() > 3 && data[0] == std::byte{0} && data[1] == std::byte{0}) {
    attempts.attempt([&] {
      const IdxArray array = parse_idx(data, static_cast<int>(data[3]), "fuzz.data");
      require(array.values.size() == static_cast<std::size_t>(array.shape.elements()), "an array of another size");
    });
    attempts.attempt([&] { (void)read_idx_pictures(folder / "fuzz.data", folder / "fuzz.data.labels"); });
  } else {
    attempts.attempt([&] {
      const NumberTable table = parse_number_csv(text_of(data), 3, "fuzz.data");
      require(table.values.size() == static_cast<std::size_t>(table.rows * 3), "a table of another size");
      for (const double v : table.values) require(std::isfinite(v), "a number that is not finite");
    });
    attempts.attempt([&] { (void)read_digits(folder / "fuzz.data"); });
  }
  attempts.finish();
}

}  // namespace aeshna::fuzz
