#pragma once
// What the parts of attention share: the roles of its operands, its attributes, and which keys a query sees.
#include <cstdint>
#include <optional>
#include <span>

#include "ir/op.h"

namespace aeshna {

/// A score at or below this is masked: -inf and the lowest float are, and no sum of ordinary scores is.
inline constexpr double kMaskedScore = -1e30;
/// Keys, queries and positions stay below this, so that positions are 32-bit integers with room for sums.
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

/// Operands of all three ops: q, k, v; the gradients' dO, lse, delta; then mask (f32) and position (i32), both optional.
inline constexpr std::size_t kAttentionOperands = 3, kGradientOperands = 6;

struct AttentionProblem {
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim;
  double scale;
  bool causal, ring;
  std::int64_t window, query_offset;
  std::optional<std::size_t> mask, position;  ///< input numbers

  std::int64_t group() const { return heads / kv_heads; }  ///< query heads that share one KV head; kv_heads > 0

  /// Of operands that infer has accepted. `required`: the first optional operand.
  static AttentionProblem of(std::span<const TensorType> inputs, const Attrs& attrs, std::size_t required);

  /// Whether the query at absolute position `at` sees key `key`; `last` is the position of the step's last query.
  bool sees(std::int64_t at, std::int64_t key, std::int64_t last) const {
    if (!causal) return true;
    if (ring) {  // slot `key` holds the latest position that is congruent to it
      const std::int64_t behind = (last - key) % keys;
      key = last - (behind < 0 ? behind + keys : behind);
    }
    return key >= 0 && key <= at && (window == 0 || key > at - window);
  }
};

// attention_eval.cpp: the specification, in double.
void eval_attention(const EvalContext& ctx);
void eval_attention_dq(const EvalContext& ctx);
void eval_attention_dkv(const EvalContext& ctx);

// lower_attention.cpp
std::vector<Candidate> lower_attention(const FusedKernel& kernel, const Caps& caps);
std::vector<Candidate> lower_attention_gradient(const FusedKernel& kernel, const Caps& caps);

}  // namespace aeshna
