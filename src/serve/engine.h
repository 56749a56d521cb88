#pragma once
// Who generates: requests become jobs, which an engine works off.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/chat.h"
#include "aeshna/error.h"
#include "aeshna/generate.h"
#include "aeshna/tokenizer.h"

namespace aeshna::serve {

/// What is served, as requests need to know it.
struct ServedModel {
  std::string id;  ///< the name by which clients ask for it
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat = {};
  std::string why_no_chat = {};  ///< if there is no template that Aeshna knows
  std::int64_t context = 0;
};

/// How a job ended.
struct JobEnd {
  Generation::End end = Generation::End::Length;
  std::size_t tokens = 0;           ///< that were generated
  std::optional<Error> error = {};  ///< it failed, and `end` means nothing
};

/// One text to generate.
struct Job {
  std::vector<std::int32_t> prompt;
  SamplingOptions sampling;
  std::int64_t max_tokens = 16;
  std::vector<std::string> stop;
  // Called on the engine's thread, never at the same time and never after cancel() has been seen; they must not block.
  std::function<void(std::string_view text)> on_text;
  std::function<void(const JobEnd& end)> on_end;  ///< once, unless the job was cancelled

  /// From any thread: nobody wants the answer any more. What it occupies is free by the next token.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_ = false;
};

/// Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const ServedModel& model() const = 0;
  enum class Admission : std::uint8_t {
    Taken,
    Full,    ///< too many wait: ask again later
    Never,   ///< more jobs than can ever wait
    Failed,  ///< the engine can do nothing more: failure() says why
  };
  /// Queues all of the jobs or none.
  virtual Admission submit(std::span<const std::shared_ptr<Job>> jobs) = 0;
  /// Why the engine cannot go on (a lost device); empty: it can.
  virtual std::string failure() const = 0;
};

struct EngineOptions {
  std::string id = {};       ///< of the model; empty: its name
  std::size_t waiting = 64;  ///< jobs that may wait at a time
  GeneratorOptions generator = {};
};

/// An engine with a worker thread of its own, which owns the model on its device. What is in work when it is destroyed ends with an error.
/// Errors: those of Generator.
std::unique_ptr<Engine> model_engine(LanguageModel model, const EngineOptions& options);

}  // namespace aeshna::serve
