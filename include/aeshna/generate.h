#pragma once
// Text from a language model: its weights in a store, sessions over key-value caches, choosing the next token.
#include <cstdint>
#include <exception>
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

/// In the order in which they are applied. The random number of a token is a function of the seed and of the token's position alone.
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
/// Error(InvalidArgument) for a number out of range, by name.
void check_sampling(const SamplingOptions& options);

/// Chooses the next token on the host, from logits that came back: for ways of choosing that Generator does not have on the device.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// `logits` f32 [vocab]; `history`: all ids so far, the prompt's too. Error(NonFinite) for a logit that is NaN or +inf, or if all are -inf.
  virtual std::int32_t next(std::span<const float> logits, std::span<const std::int32_t> history) = 0;
};
/// What Generator does on the device for the same options: the reference of nn::sample(). Errors of check_sampling().
std::unique_ptr<Sampler> host_sampler(const SamplingOptions& options);

struct GeneratorOptions {
  std::int64_t context = 2048;  ///< positions of each sequence
  std::int64_t chunk = 512;     ///< ids of a prompt that one step reads at most
  std::int64_t sequences = 1;   ///< generated at the same time
  std::int64_t repetition_window = 64;  ///< the longest that requests may ask for
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
  enum class End : std::uint8_t { Token, Stop, Length, Context, Caller, Error } end = End::Length;
  std::exception_ptr error;   ///< End::Error: what the request failed with; text and ids are those before
  double prompt_seconds = 0;  ///< from its start to its first token
  double seconds = 0;         ///< from there to the last one
};

struct Request {
  std::vector<std::int32_t> prompt;  ///< at least one id
  SamplingOptions sampling = {};
  GenerateOptions options = {};
  std::function<void(Generation)> on_end = {};  ///< called once, by advance()
};

/// A model on a device with the caches of several sequences. Requests share every step, whatever their options; each goes on from what
/// its caches hold already of its prompt. A step chooses its tokens on the device and passes them to the next one there, so that
/// the host looks at a step while the next one runs: a request that ends by itself has wasted one step of its sequence. The ids of a request do not
/// depend on the others (docs/models.md). One thread at a time.
class Generator {
 public:
  /// Loads the weights. Error(InvalidArgument) for numbers below 1, or caches beyond what an extent may be.
  explicit Generator(LanguageModel model, GeneratorOptions options = {});
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  /// Compiles the steps that are otherwise compiled when the first request that needs them starts: for prompts of several lengths, and for sampling. So
  /// no request waits for it, and a device that lacks the memory for one says so now.
  void prepare();
  /// Queues a request and returns its number; requests start in this order. Error(InvalidArgument, OutOfRange or LimitExceeded) for options out of
  /// range, for an id that is no token, and for a prompt that leaves no room in the context. Callbacks may add and cancel requests, and nothing else.
  std::uint64_t add(Request request);
  /// One round: a chunk of every prompt that is not read yet, a token for all others. Calls back with what came out of the round before. A request
  /// whose steps cannot be compiled, whose logits are not finite, or whose on_text throws, ends with that error and leaves the others alone. What an
  /// on_end throws is thrown when the round is over. Errors of the device are thrown, and all requests are gone without a call. False: nothing is left to do.
  bool advance();
  /// Ends a request as the caller's wish, at the next advance(); its on_end is called. Unknown and ended ones are ignored.
  void cancel(std::uint64_t request);

  /// Goes on from `prompt` on the device, together with the requests that are under way. Errors of add() and of the request.
  Generation generate(std::span<const std::int32_t> prompt, const SamplingOptions& sampling,
                      const GenerateOptions& options = {});
  /// All requests (whose on_end are called too), in this order. All are checked before the first starts; those that fail later say so in `error`.
  std::vector<Generation> generate(std::span<const Request> requests);
  /// The same with a choice on the host, one step after the other. Error(InvalidArgument) while requests are under way.
  Generation generate(std::span<const std::int32_t> prompt, Sampler& sampler, const GenerateOptions& options = {});
  /// The logits that follow `ids`, f32 [vocab]. Error(InvalidArgument) while requests are under way.
  std::vector<float> logits(std::span<const std::int32_t> ids);
  const LanguageModel& model() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace aeshna
