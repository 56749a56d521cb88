#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/graph.h"
#include "aeshna/optim.h"
#include "aeshna/weights.h"

namespace aeshna {

enum class Mode : std::uint8_t { Inference, Training };
/// Strict: f32 products and nothing else. Accelerated: inputs of forward products may be rounded to 16 bits; it allows, it does not
/// promise: today every kernel is a strict one.
enum class Contract : std::uint8_t { Strict, Accelerated };

struct CompileOptions {
  Mode mode = Mode::Inference;
  Contract contract = Contract::Strict;
  std::optional<Optimizer> optimizer = {};  ///< Training: default Adam{}
  TrainingOptions train = {};
  std::string loss = {};               ///< output name of the loss; empty: the only scalar float output
  std::vector<std::string> gradients = {};  ///< values whose gradients become outputs "grad/<name>"
  bool update = true;                  ///< Training: false: forward + loss + backward only, every requested gradient an output
  bool fusion = true, aliasing = true; ///< for debugging
  double chunk_ms = 100;               ///< submissions are split so that each is estimated below this
  bool tiny_tiles = false;             ///< tests
};

/// A compiled graph over shared weights: command buffers recorded once, replayed by each step.
/// One thread at a time. Errors of the device surface at the wait and stay until the session is dropped.
class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  /// Writes an input; the bytes are copied at once. Types and sizes are checked: Error names input, expected, found.
  /// On unified memory they are copied to where the step reads them, after the step before has ended; elsewhere to a staging buffer,
  /// one step ahead.
  void set(std::string_view input, std::span<const float> values);
  void set(std::string_view input, std::span<const std::int32_t> values);
  void set(std::string_view input, const Literal& value);
  /// One step: forward (inference) or forward + backward, and the update on every `accumulate`-th call. Every input must have been
  /// set at least once. Returns after submission.
  void step();
  /// Forward only, also in a training session.
  void forward();
  /// Waits for everything submitted; throws Error for a lost device and for a bad step (NonFinite, OutOfRange) naming the op.
  /// A bad step of a training session has changed no state; an inference session assigns its states whatever the checks say.
  void wait();
  /// Value of an output after the last step (waits).
  std::vector<float> read(std::string_view output);
  Literal read_literal(std::string_view output);
  float read_scalar(std::string_view output);
  /// Value of an output of at most 64 KiB after the step before the last, which alone is waited for: the host looks at one step while the device
  /// works on the next. Error(InvalidArgument) for a larger output and before the second step; a bad step as wait().
  Literal read_previous(std::string_view output);

  /// Updates made so far (Training), as the device counts them.
  std::int64_t steps() const;
  /// Overrides the scheduled learning rate from now on; nullopt returns to the schedule.
  void set_learning_rate(std::optional<double> lr);

  /// Re-runs the last step in the interpreter with the same inputs and state and names the first node with a non-finite value; empty: none.
  /// On unified memory: Error(InvalidArgument) when an input was set after it, unless that step was bad.
  std::string diagnose();

  /// Checkpoint: parameters, optimizer state, states, step, generator state and `extra` (JSON text of the caller, such as the data
  /// position); atomic. See docs/checkpoint.md.
  void save(const std::filesystem::path& file, std::string_view extra = {}) const;
  /// Checks everything first, then loads; returns `extra`. Inference sessions take the parameters only.
  std::string load(const std::filesystem::path& file);

  const Graph& graph() const;
  Weights weights() const;
  std::string plan() const;  ///< as `aeshna dump --stage plan`
  struct Memory {
    std::uint64_t logical_bytes, arena_bytes, pinned_bytes, workspace_bytes;
  };
  Memory memory() const;
  struct StageSeconds {
    std::string stage;
    double seconds;
  };
  std::vector<StageSeconds> compile_times() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  friend Session compile(const Graph&, const Weights&, CompileOptions);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Compiles `graph` (which is copied) for the device of `weights`; parameters and states that the store lacks are added to it.
Session compile(const Graph& graph, const Weights& weights, CompileOptions options = {});

}  // namespace aeshna
