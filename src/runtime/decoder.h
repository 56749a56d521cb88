#pragma once
// The device part of generation: the caches of several sequences, and the sessions that read prompts into them and decode.
//
// What a decode step needs of the one before stays on the device, in states that all sessions share: the token that each sequence goes
// on from, its position, and its last tokens. The position of a sequence says where its next row goes; rows from there on mean
// nothing, and every step may overwrite them: a step that decodes only some of the sequences writes one such row of the others too, and one that
// reads a prompt writes as many rows as it is recorded for. The caches have room for the smallest such step behind the last position.
#include <deque>
#include <map>
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

  /// Compiles all steps.
  void prepare_all();
  /// Compiles the steps that a prompt of so many ids needs, of which the caches hold some already.
  void prepare_for(std::size_t held, std::size_t ids, bool samples);
  /// Submits the reading of the first of these ids into one sequence, at this position; its rows below hold what came before. Returns how many of
  /// them: all, or as many as one step can.
  std::size_t read(std::size_t sequence, std::size_t position, std::span<const std::int32_t> ids);
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
  Session& reading(std::int64_t rows);
  Plan& sampled();
  Session compile_read(std::int64_t rows);
  /// Of the sizes for which reading steps are recorded: the one for so many ids that fits behind this position.
  std::int64_t reading_rows(std::int64_t position, std::int64_t ids) const;
  Session compile_decode(bool sampled);
  template <class T>
  static void set(Session& session, std::string_view input, std::vector<T>& held, const std::vector<T>& wanted);
  void set_sampling(Plan& plan, std::span<const DecodeRow> rows);
  std::int64_t smallest_rows() const;
  std::int64_t capacity() const { return options_.context + smallest_rows(); }

  LanguageModel model_;
  GeneratorOptions options_;
  Weights weights_;
  Plan greedy_;
  // Compiled when first needed.
  std::map<std::int64_t, Session> reading_;  ///< by the ids that a step reads
  std::optional<Plan> sampled_;
  std::deque<Plan*> pending_;
  std::vector<std::int32_t> ids_, chunk_, control_, recent_, integers_;
  std::vector<float> numbers_;
};

}  // namespace aeshna
