#pragma once
// `aeshna train`: options, and the run that its data sets share.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "io/datasets.h"

namespace aeshna::cli {

struct TrainArguments {
  std::string model = "mlp";  ///< or "cnn"
  std::int64_t epochs = 40;
  std::int64_t batch = 50;
  std::uint64_t seed = 1;
  double lr = 5e-3;
  std::vector<std::int64_t> hidden = {128, 64};
  std::vector<std::int64_t> channels = {16, 32};
  double dropout = 0.25;
  std::string optimizer = "adamw";
  std::string out_dir = ".";
  std::string checkpoint = {};  ///< default: OUT_DIR/<task>.safetensors
  std::string loss_svg = {};    ///< default: OUT_DIR/loss.svg
  bool resume = false;
  bool diagnose = false;
};

/// Pictures to train on and pictures held out.
struct PictureTask {
  std::string name;         ///< "digits"
  std::string data_source;  ///< for the first line of output
  PictureSet train, held_out;
};

/// Trains a classifier, saves it, opens the file in a fresh inference session, and shows how well that does on the pictures held
/// out. Returns the exit status.
int train_pictures(const PictureTask& task, const TrainArguments& arguments, const Globals& globals);

struct CharsArguments {
  std::vector<std::string> text = {};  ///< files; empty: README.md and docs/*.md of the project
  std::int64_t steps = 400;
  std::int64_t batch = 6;
  std::int64_t window = 128;  ///< characters that the model sees at once
  std::int64_t width = 64, layers = 2, heads = 4;
  double lr = 1e-2;
  std::uint64_t seed = 1;
  std::int64_t generate = 300;  ///< characters
  double temperature = 0.7;
  std::string prompt = {};  ///< empty: the text's first character
  std::string out_dir = ".";
  std::string checkpoint = {};  ///< default: OUT_DIR/chars.safetensors
  std::string gguf = {};        ///< default: OUT_DIR/chars.gguf
  bool resume = false;
};

/// Trains a character-level Llama, saves it as a checkpoint and as a GGUF file, opens the latter as `aeshna generate` does, measures its loss
/// on the end of the text, which was held out, and lets it write. Returns the exit status.
int train_chars(const CharsArguments& arguments, const Globals& globals);
/// The subcommand `chars` of `train`.
void add_train_chars(CLI::App& train, const Globals& globals, Action& action);

/// The subcommand `lora`.
void add_train_lora(CLI::App& train, const Globals& globals, Action& action);

/// A file or folder that comes with Aeshna: from the current folder, from the source tree that the program was built in, or from
/// the folder that it is installed in (PREFIX/bin beside PREFIX/share/aeshna). `what` is its path in the source tree; Error(NotFound)
/// says where it was looked for and names the option that gives its place.
std::filesystem::path find_resource(const std::filesystem::path& what, std::string_view option);

}  // namespace aeshna::cli
