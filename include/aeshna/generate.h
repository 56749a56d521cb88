#pragma once
// Text from a language model: its weights in a store, sessions over key-value caches, choosing the next token.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/language_model.h"
#include "aeshna/session.h"
#include "aeshna/weights.h"

namespace aeshna {

/// Sets the parameters of a graph of llama() or llama_decode() in a store that has them, one tensor in memory at a time. Error(NotFound) for a
/// parameter that the store lacks, Error(ShapeMismatch or DTypeMismatch) for one of another type.
void load_weights(const LanguageModel& model, Weights& weights);

/// Chooses the next token. An interface, so that it may happen elsewhere than on the host.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// `logits` f32 [vocab]; `history`: all ids so far, the prompt's too. Error(NonFinite) for a logit that is not a number.
  virtual std::int32_t next(std::span<const float> logits, std::span<const std::int32_t> history) = 0;
};

/// In the order in which they are applied. Error(InvalidArgument) of host_sampler() for numbers out of range.
struct SamplingOptions {
  double repetition_penalty =
      1;  ///< logits of tokens of the last `repetition_window` ids are divided (if negative: multiplied) by it
  std::int64_t repetition_window = 64;
  double temperature = 0;  ///< 0: the most likely token, whatever follows
  std::int64_t top_k = 0;  ///< the k most likely tokens; 0: all
  double top_p = 1;        ///< the most likely tokens that have this probability together
  double min_p = 0;        ///< tokens of at least this share of the most likely one's probability
  std::uint64_t seed = 0;
};
std::unique_ptr<Sampler> host_sampler(const SamplingOptions& options);

struct GeneratorOptions {
  std::int64_t context = 2048;  ///< positions of the caches
  std::int64_t chunk = 64;      ///< ids of a prompt that one step reads
  std::optional<Device> device = {};
};

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  std::vector<std::string> stop = {};                       ///< texts at which generation ends; they do not come out
  bool special = false;                                     ///< control tokens come out too
  std::function<bool(std::string_view text)> on_text = {};  ///< gets the text as it comes; false ends generation
};

struct Generation {
  std::string text;
  std::vector<std::int32_t> ids;  ///< what was generated, the token that ended it included
  enum class End : std::uint8_t { Token, Stop, Length, Context, Caller } end = End::Length;
  double prompt_seconds = 0, seconds = 0;
};

/// A model on a device with its caches: two sessions (for chunks of a prompt and for one token) over one store.
class Generator {
 public:
  /// Loads the weights. Error(InvalidArgument) for a context or chunk below 1.
  explicit Generator(LanguageModel model, GeneratorOptions options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Goes on from `prompt` (at least one id). What it has in common with the ids that the caches hold is not computed again. Error(LimitExceeded) if it
  /// leaves no room in the context.
  Generation generate(std::span<const std::int32_t> prompt, Sampler& sampler, const GenerateOptions& options = {});
  /// The logits that follow `ids`, f32 [vocab].
  std::vector<float> logits(std::span<const std::int32_t> ids);
  const LanguageModel& model() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aeshna
