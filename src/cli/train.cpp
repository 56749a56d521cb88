// aeshna train digits | mnist: the options and where the data come from; the run is in train_run.cpp.
#include "cli/train.h"

#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/fail.h"

namespace aeshna::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSplitSeed = 2024;    // documented in docs/data.md
constexpr std::int64_t kDigitsHeldOut = 297;  // 1797 digits: 1500 to train
constexpr std::int64_t kHeldOutPart = 7;      // of a set without a test part: a seventh

PictureTask load_digits(const std::string& data) {
  const fs::path file = data.empty() ? find_resource("data/optdigits.csv.gz", "--data") : fs::path(data);
  PictureSet all = read_digits(file);
  if (all.data.size() <= kDigitsHeldOut) {
    fail(ErrorCode::InvalidArgument, "{}: {} digits are too few: {} are held out", file.string(), all.data.size(),
         kDigitsHeldOut);
  }
  Split split = stratified_split(all.data, "labels", kDigitsHeldOut, kSplitSeed);
  PictureTask task{.name = "digits", .data_source = file.string(), .train = all, .held_out = all};
  task.train.data = std::move(split.train);
  task.held_out.data = std::move(split.test);
  return task;
}

PictureTask load_mnist(const std::string& folder) {
  Mnist mnist = read_mnist(folder);
  PictureTask task{.name = "mnist", .data_source = folder, .train = std::move(mnist.train), .held_out = {}};
  if (mnist.test) {
    task.held_out = std::move(*mnist.test);
  } else {
    task.held_out = task.train;
    Split split = stratified_split(task.train.data, "labels", task.train.data.size() / kHeldOutPart, kSplitSeed);
    task.train.data = std::move(split.train);
    task.held_out.data = std::move(split.test);
  }
  return task;
}

/// Where the model's own defaults differ from those of the perceptron.
struct CnnDefaults {
  std::int64_t epochs;
  double lr;
};
constexpr CnnDefaults kCnnDigits = {20, 2e-3}, kCnnMnist = {3, 1e-3};

void add_options(CLI::App& command, TrainArguments& a, const std::string& task) {
  command.add_option("--model", a.model, "mlp: a perceptron; cnn: 3x3 convolutions before it")
      ->check(CLI::IsMember({"mlp", "cnn"}))
      ->capture_default_str();
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 31);
  command.add_option("--epochs", a.epochs, "Passes over the training pictures")->check(positive)->capture_default_str();
  command.add_option("--batch", a.batch, "Pictures per step")->check(positive)->capture_default_str();
  command.add_option("--seed", a.seed, "Of the first weights and of the order of the pictures")
      ->check(unsigned_number())
      ->capture_default_str();
  command.add_option("--lr", a.lr, "Highest learning rate; it falls to 0 along a cosine")
      ->check(finite())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--hidden", a.hidden, "Widths of the hidden layers, such as 128,64 (cnn: none)")
      ->delimiter(',')
      ->check(positive)
      ->capture_default_str();
  command.add_option("--channels", a.channels, "cnn: channels of the convolutions, such as 16,32")
      ->delimiter(',')
      ->check(positive)
      ->capture_default_str();
  command.add_option("--dropout", a.dropout, "cnn: share of features dropped while training")
      ->check(finite())
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  command.add_option("--optimizer", a.optimizer)
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "laprop"}))
      ->capture_default_str();
  command.add_option("--out-dir", a.out_dir, "Folder of the files written; made if missing")->capture_default_str();
  command.add_option("--checkpoint", a.checkpoint,
                     "File, written after each epoch (default: OUT_DIR/" + task + ".safetensors)");
  command.add_flag("--resume", a.resume, "Go on from the checkpoint if it exists");
  command.add_flag("--diagnose", a.diagnose,
                   "On a loss that is not finite, name the first node that made it so (slower)");
  command.add_option("--loss-svg", a.loss_svg, "Chart of loss and accuracy (default: OUT_DIR/loss.svg)");
}

}  // namespace

fs::path find_resource(const fs::path& what, std::string_view option) {
  std::error_code ignored;
  std::vector<fs::path> candidates = {what};
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    const fs::path folder = program.parent_path(), prefix = folder.parent_path();
    candidates.push_back(prefix / "share" / "aeshna" / what.filename());
    if (what == "docs") candidates.push_back(prefix / "share" / "doc" / "aeshna");
    candidates.push_back(prefix / what);                // the build folder is in the source tree,
    candidates.push_back(prefix.parent_path() / what);  // as build/ or as build/PRESET
  }
  std::string tried;
  for (const fs::path& path : candidates) {
    if (fs::exists(path, ignored)) return path;
    tried += "\n  " + path.string();
  }
  fail(ErrorCode::NotFound, "{} was found nowhere; give its place with {}. Looked for:{}", what.filename().string(),
       option, tried);
}

void add_train(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* train = app.add_subcommand("train", "Train a model, save it, and try the saved file");
  train->require_subcommand(1);

  struct Options {
    std::string data;
    TrainArguments arguments;
  };
  const auto add = [&](const std::string& name, const std::string& doc, TrainArguments defaults, CnnDefaults cnn,
                       PictureTask (*load)(const std::string&)) {
    CLI::App* command = train->add_subcommand(name, doc);
    auto options = std::make_shared<Options>(Options{.data = {}, .arguments = std::move(defaults)});
    add_options(*command, options->arguments, name);
    command->callback([&globals, &action, options, load, command, cnn] {
      TrainArguments& a = options->arguments;
      if (a.model == "cnn") {
        if (command->count("--epochs") == 0) a.epochs = cnn.epochs;
        if (command->count("--lr") == 0) a.lr = cnn.lr;
        if (command->count("--hidden") == 0) a.hidden = {};
      } else if (command->count("--channels") + command->count("--dropout") > 0) {
        throw CLI::ValidationError("--channels and --dropout are for --model cnn");
      }
      action = [&globals, options, load] { return train_pictures(load(options->data), options->arguments, globals); };
    });
    return command->add_option("--data", options->data);
  };
  add("digits", "8x8 handwritten digits that come with Aeshna", {}, kCnnDigits, load_digits)
      ->description("CSV file, plain or .gz (default: the optdigits.csv.gz that comes with Aeshna)");
  add("mnist", "28x28 handwritten digits in MNIST's IDX files",
      {.epochs = 10, .batch = 100, .lr = 2e-3, .hidden = {256, 128}}, kCnnMnist, load_mnist)
      ->required()
      ->description("Folder of train-images-idx3-ubyte, train-labels-idx1-ubyte and, if there, t10k-*; plain or .gz");
  add_train_chars(*train, globals, action);
  add_train_lora(*train, globals, action);
}

}  // namespace aeshna::cli
