#pragma once
// Checkpoints: names, metadata and checks. The format is described in docs/checkpoint.md.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/store.h"

namespace aeshna {

/// The JSON string under "aeshna" in the metadata of a checkpoint.
struct CheckpointInfo {
  std::int64_t version = 1;
  std::int64_t step = 0;        ///< updates made
  std::int64_t micro_step = 0;  ///< micro-steps accumulated since the last update
  std::uint64_t seed = 0;
  std::string optimizer;  ///< "sgd", "adam", "adamw", "laprop"; empty: no optimizer state in the file
  std::string extra;      ///< the caller's text, verbatim
};

/// Name in files of a tensor of the store: parameters verbatim, "aeshna.opt.*" and "aeshna.acc/*" too, other states
/// "aeshna.state/<name>".
std::string checkpoint_name(std::string_view name, bool parameter);

/// Writes these tensors of the store, atomically; one consistent snapshot.
void write_checkpoint(Weights::Impl& store, const std::filesystem::path& file, std::span<const std::string> names,
                      const CheckpointInfo& info);

/// What a load demands of a file.
struct CheckpointDemand {
  std::vector<std::string> required;      ///< tensors of the store that must be there with their types
  std::vector<std::string> optional;      ///< tensors of the store that are taken if they are there
  std::vector<std::string> accumulating;  ///< required if the file was written between micro-steps
  std::uint32_t accumulate = 1;           ///< micro-steps per update: the file's micro_step must be below it
  bool allow_training_state =
      false;  ///< "aeshna.*" tensors that are neither are ignored; anything else unknown is an error
  std::optional<std::string> optimizer;  ///< must be the file's, if set
};

/// Checks the file completely, then changes the store; on any Error nothing has changed. Lists every problem in one
/// message.
CheckpointInfo read_checkpoint(Weights::Impl& store, const std::filesystem::path& file, const CheckpointDemand& demand);

/// The metadata alone, without a look at the tensors.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& file);

// Weights::save and Weights::load.
void save_weights(Weights::Impl& store, const std::filesystem::path& file, bool states);
void load_weights(Weights::Impl& store, const std::filesystem::path& file);

}  // namespace aeshna
