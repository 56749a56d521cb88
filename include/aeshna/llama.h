#pragma once
// The Llama family as one builder: Llama, Mistral, SmolLM2, Qwen 2 and 3, Gemma 2 and 3, Phi 3.
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "aeshna/ops.h"

namespace aeshna::models {

/// A low-rank adapter beside a linear (LoRA, arXiv 2106.09685): y + scale (x A^T) B^T.
struct Adapter {
  std::int64_t rank = 8;
  double scale = 2;
};

/// What the members of the family differ in; the defaults are Llama's. A layer is attention and a gated feed-forward part, each behind a
/// norm (rms_norm) and added to what it read.
struct LlamaConfig {
  std::int64_t vocab = 0, hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  std::int64_t context = 0;  ///< positions that the model was trained for; 0: unknown. Nothing is refused beyond it
  double eps = 1e-5;

  double rope_base = 10000;
  bool rope_interleaved =
      false;  ///< pairs (2i, 2i + 1), as GGUF files of the architecture "llama" have their q and k rows
  std::int64_t rotary_dim = 0;  ///< 0: head_dim
  RopeScaling rope_scaling = {};

  std::int64_t window = 0;  ///< keys that a query of a windowed layer sees; 0: all
  std::int64_t window_period =
      0;  ///< every so manieth layer has no window (of 2: layers 1, 3, ...); 0: all layers have it
  std::optional<double> window_rope_base = {};  ///< of windowed layers, whose positions are then not scaled

  std::optional<double> attention_scale = {};  ///< unset: 1 / sqrt(head_dim)
  double attention_softcap = 0;  ///< c tanh(score / c) before the mask; 0: none. Scores are then held in memory
  double logits_softcap = 0;

  bool qkv_bias = false;          ///< Qwen 2
  bool qk_norm = false;           ///< rms_norm of each head's q and k (Qwen 3, Gemma 3)
  bool fused_qkv = false;         ///< one weight qkv_proj [q | k | v] (Phi 3)
  bool fused_gate_up = false;     ///< one weight gate_up_proj [gate | up] (Phi 3)
  bool gelu = false;              ///< gelu_tanh(gate) * up instead of silu (Gemma)
  bool post_norms = false;        ///< also a norm behind attention and feed-forward part (Gemma)
  bool scaled_embedding = false;  ///< times sqrt(hidden) (Gemma)
  bool tied = true;               ///< logits = h E^T; else a weight "lm_head.weight"

  bool trainable = false;  ///< of parameters that are not quantized. Frozen ones are zero until they are loaded
  /// Of weights that are not f32, by name: quantized blocks, f16 or bf16, which products and the embedding read as they are. They are frozen.
  std::map<std::string, DType, std::less<>> dtypes = {};

  /// By the linear that they stand beside ("model.layers.0.self_attn.q_proj"). Their parameters, "<linear>.lora_A.weight" [rank, in]
  /// (Kaiming-uniform) and "<linear>.lora_B.weight" [out, rank] (zeros), are trainable whatever `trainable` says of the others.
  std::map<std::string, Adapter, std::less<>> adapters = {};
  double adapter_dropout = 0;  ///< share of an adapter's input that is dropped; of graphs that train
};

/// ids i32 [B, S] -> logits f32 [B, S, vocab], causal, positions 0 .. S - 1. Parameters are named as Hugging Face's checkpoints name
/// them ("model.layers.0.self_attn.q_proj.weight"); Gemma's norms have weights w where those have w - 1. Throws Error(InvalidArgument
/// or ShapeMismatch) "[models::llama] ..." with the caller's line.
Value llama(Value ids, const LlamaConfig& config, Loc loc = Loc::current());

struct LlamaDecode {
  Value position;             ///< i32 [B], of each sequence's first id
  std::int64_t capacity = 0;  ///< positions of the caches
  /// i32 [B]: the row of each sequence whose logits are wanted; the result is then [B, 1, vocab], and the others cost no output layer.
  std::optional<Value> row = {};
  /// Caches of more sequences than `ids`, which then is [1, S] and belongs to one of them.
  struct Slot {
    Value index;  ///< i32 [1]: which one
    /// i32 [sequences]: from where on the rows of each sequence mean nothing yet. S rows from there are overwritten in all of them, which is
    /// cheaper than to leave the others alone; of the sequence `index` it is `position` that counts.
    Value next;
  };
  std::optional<Slot> slot = {};
};
/// The same over key-value caches: ids i32 [B, S] at positions position[b] .. position[b] + S - 1 -> logits [B, S, vocab]. The states
/// "cache.<layer>/keys" and "/values" have `capacity` positions; sessions of any S over one Weights share them. Equal to llama() at the same positions.
/// Rows beyond a sequence's end may hold any id: what they write is never seen before it is overwritten.
Value llama_decode(Value ids, const LlamaDecode& decode, const LlamaConfig& config, Loc loc = Loc::current());

}  // namespace aeshna::models
