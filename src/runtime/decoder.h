#pragma once
// The device part of generation: the caches of several sequences, and the sessions that read prompts into them and decode.
//
// What a decode step needs of the one before stays on the device, in states that all sessions share: the token that each sequence goes
// on from, its position, and its last tokens. The position of a sequence says where its next row goes; rows from there on mean
// nothing, and every step may overwrite them: a step that decodes only some of the sequences writes one such row of the others too, and a chunk of a
// prompt writes a chunk of them. The caches have room for that behind the last position.
#include <deque>
#include <optional>

#include "aeshna/generate.h"

namespace aeshna {

/// What a decode step does with a sequence.
struct DecodeRow {
  bool active = false;  ///< else it stays where it is, and its id means nothing
  std::span<const std::int32_t>
      start;  ///< not empty: these are its ids from now on, all but the last of which the caches hold
  const SamplingOptions* sampling = nullptr;  ///< null: the most likely token
};

class Decoder {
 public:
  Decoder(LanguageModel model, const GeneratorOptions& options);

  const LanguageModel& model() const { return model_; }
  const GeneratorOptions& options() const { return options_; }
  gpu::Device& device() { return weights_.device().impl(); }

  /// Submits the reading of up to `chunk` ids of one sequence, at this position; its rows below hold what came before.
  void read(std::size_t sequence, std::size_t position, std::span<const std::int32_t> ids);
  /// Submits a step, one row for each sequence.
  void step(std::span<const DecodeRow> rows);
  /// Steps whose ids were not taken. At most two.
  std::size_t pending() const { return pending_.size(); }
  /// The ids of the oldest of them, which is waited for: -1 for a row without finite logits.
  std::span<const std::int32_t> take();
  /// Forgets them.
  void drop() { pending_.clear(); }
  /// The logits of a sequence after the last step, in which no row had SamplingOptions. f32 [vocab].
  std::vector<float> logits(std::size_t sequence);

 private:
  /// A session with what its inputs hold, so that they are written only when they change.
  struct Plan {
    Session session;
    std::vector<std::int32_t> control, recent, integers;
    std::vector<float> numbers;
  };
  Session compile_read();
  Session compile_decode(bool sampled);
  template <class T>
  static void set(Session& session, std::string_view input, std::vector<T>& held, const std::vector<T>& wanted);
  void set_sampling(Plan& plan, std::span<const DecodeRow> rows);
  std::int64_t capacity() const { return options_.context + options_.chunk; }

  LanguageModel model_;
  GeneratorOptions options_;
  Weights weights_;
  Session read_;
  Plan greedy_;
  std::optional<Plan> sampled_;  ///< compiled when first needed
  std::deque<Plan*> pending_;
  std::vector<std::int32_t> ids_, chunk_, control_, recent_, integers_;
  std::vector<float> numbers_;
};

}  // namespace aeshna
