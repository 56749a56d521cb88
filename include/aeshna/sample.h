#pragma once
// Choosing the next token on the device. Options are data, so that one plan serves rows of any options in one batch.
#include "aeshna/ops.h"

namespace aeshna::nn {

/// How each row of logits f32 [B, vocab] is sampled.
struct SampleOptions {
  Value
      repetition_penalty;  ///< f32 [B], above 0: logits of tokens in `recent` are divided by it, negative ones multiplied
  Value recent;            ///< i32 [B, W], W >= 1: tokens; those below 0 count as none
  Value temperature;       ///< f32 [B]; 0: the most likely token
  Value top_k;             ///< i32 [B]: of the k most likely tokens; 0: of all
  Value top_p;             ///< f32 [B], in (0, 1]: of the most likely tokens that have this probability together
  Value min_p;             ///< f32 [B]: of tokens of at least this share of the most likely one's probability
  Value seed;              ///< i32 [B, 2]: the low and the high half
  Value draw;              ///< i32 [B]: the number of the draw. The random number is a function of seed and draw alone
};

/// The first of the most likely tokens of each row: i32 [B]. -1 where a logit is NaN or +inf, or all are -inf.
Value most_likely(Value logits, Loc loc = Loc::current());

/// A token of each row of logits, in the order of the options: penalty, then softmax(scores / temperature) over the tokens that top_k, top_p
/// (measured among those top_k leaves) and min_p leave. Equal scores are in order of their ids, and nothing is approximated: rows are sorted completely. i32
/// [B]; -1 as of most_likely(). host_sampler() chooses the same, but for sums that round differently. Throws Error(ShapeMismatch or
/// DTypeMismatch) "[nn::sample] ..." with the caller's line.
Value sample(Value logits, const SampleOptions& options, Loc loc = Loc::current());

}  // namespace aeshna::nn
