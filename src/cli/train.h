#pragma once
// `aeshna train`: options, and the run that its data sets share.
#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "io/datasets.h"

namespace aeshna::cli {

struct TrainArguments {
  std::int64_t epochs = 40;
  std::int64_t batch = 50;
  std::uint64_t seed = 1;
  double lr = 5e-3;
  std::vector<std::int64_t> hidden = {128, 64};
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

}  // namespace aeshna::cli
