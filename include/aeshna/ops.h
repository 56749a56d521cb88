#pragma once
#include <optional>
#include <vector>

#include "aeshna/graph.h"

/// The vocabulary as free functions. Every function checks types at once and throws Error naming the op, the
/// operand types and the caller's line. "any axes": an empty list means all axes; negative axes count from the end.
namespace aeshna {

using Axes = std::vector<std::int64_t>;
using Loc = std::source_location;

// ---- pointwise, one operand (f32 in, f32 out unless said otherwise; docs/ops.md has domains and ULP bounds)
Value neg(Operand x);
Value abs(Operand x);
Value sign(Operand x);
Value exp(Operand x);
Value log(Operand x);
Value log1p(Operand x);
Value expm1(Operand x);
Value sqrt(Operand x);
Value rsqrt(Operand x);
Value recip(Operand x);
Value sin(Operand x);
Value cos(Operand x);
Value tanh(Operand x);
Value sigmoid(Operand x);
Value erf(Operand x);
Value relu(Operand x);
Value silu(Operand x);
Value gelu_erf(Operand x);
Value gelu_tanh(Operand x);
Value softplus(Operand x);
Value floor(Operand x);
Value ceil(Operand x);
Value round(Operand x);  ///< half to even
Value is_finite(Operand x);  ///< boolean; tested by bits
Value logical_not(Operand x);

// ---- pointwise, two operands with NumPy broadcasting; both of one dtype (a number takes the other's)
Value add(Operand a, Operand b);
Value sub(Operand a, Operand b);
Value mul(Operand a, Operand b);
Value div(Operand a, Operand b);  ///< integers: truncating; division by zero gives 0 for integers
Value pow(Operand a, Operand b);
Value maximum(Operand a, Operand b);  ///< NaN if either is; ties split the gradient in half (as torch.maximum)
Value minimum(Operand a, Operand b);
Value mod(Operand a, Operand b);   ///< floor-mod: the sign of b
Value fmod(Operand a, Operand b);  ///< truncated: the sign of a
Value equal(Operand a, Operand b);
Value not_equal(Operand a, Operand b);
Value less(Operand a, Operand b);
Value less_equal(Operand a, Operand b);
Value greater(Operand a, Operand b);
Value greater_equal(Operand a, Operand b);
Value logical_and(Operand a, Operand b);
Value logical_or(Operand a, Operand b);
Value logical_xor(Operand a, Operand b);

// ---- pointwise, three operands
Value select(Operand condition, Operand if_true, Operand if_false);
Value clamp(Operand x, Operand low, Operand high);  ///< NaN stays NaN; gradient 1 inside and on the bounds

Value cast(Operand x, DType dtype);
/// Blocks the gradient.
Value stop_gradient(Operand x);

inline Value operator+(Operand a, Operand b) { return add(a, b); }
inline Value operator-(Operand a, Operand b) { return sub(a, b); }
inline Value operator*(Operand a, Operand b) { return mul(a, b); }
inline Value operator/(Operand a, Operand b) { return div(a, b); }
inline Value operator-(Operand a) { return neg(a); }

// ---- reductions
Value sum(Operand x, const Axes& axes = {}, bool keepdims = false);   ///< empty: 0
Value mean(Operand x, const Axes& axes = {}, bool keepdims = false);  ///< empty: NaN is never produced, it is an error at build time
Value reduce_max(Operand x, const Axes& axes = {}, bool keepdims = false);  ///< empty: error; ties share the gradient equally (as torch.amax)
Value reduce_min(Operand x, const Axes& axes = {}, bool keepdims = false);
Value prod(Operand x, const Axes& axes = {}, bool keepdims = false);  ///< empty: 1
Value argmax(Operand x, std::int64_t axis, bool keepdims = false);  ///< i32; first maximum; NaN counts as the largest
Value argmin(Operand x, std::int64_t axis, bool keepdims = false);
Value logsumexp(Operand x, const Axes& axes = {}, bool keepdims = false);  ///< a row of all -inf gives -inf
Value softmax(Operand x, std::int64_t axis = -1);
Value log_softmax(Operand x, std::int64_t axis = -1);

// ---- products
/// [..., M, K] x [..., K, N] -> [..., M, N]; leading dimensions broadcast; rank-1 operands as in NumPy.
/// transpose_a / transpose_b swap an operand's last two dimensions.
Value matmul(Operand a, Operand b, bool transpose_a = false, bool transpose_b = false);
/// x [..., in] times w [out, in] transposed, plus bias [out] if given.
Value linear(Operand x, Operand w, std::optional<Value> bias = std::nullopt);

// ---- losses; all are scalars (rank 0) with reduction Mean or Sum, or per element/row with None
enum class Reduction : std::uint8_t { Mean, Sum, None };
/// logits [..., C] with labels [...] i32 (rows equal to ignore_index count neither in the sum nor in the mean; all
/// ignored gives 0), or dense label probabilities [..., C] f32. A label outside [0, C) that is not ignore_index sets the
/// step's status word (Error OutOfRange), and never reads out of bounds.
Value cross_entropy(Operand logits, Operand labels, Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100);
Value mse(Operand prediction, Operand target, Reduction reduction = Reduction::Mean);
Value l1(Operand prediction, Operand target, Reduction reduction = Reduction::Mean);
Value bce_with_logits(Operand logits, Operand target, Reduction reduction = Reduction::Mean);

// ---- shape
Value reshape(Operand x, std::vector<std::int64_t> dims, Loc loc = Loc::current());  ///< one dimension may be -1
Value permute(Operand x, std::vector<std::int64_t> axes, Loc loc = Loc::current());
Value transpose(Operand x);  ///< swaps the last two axes
/// Half-open [start, end) with step >= 1 per listed axis; negative starts and ends count from the end, and are clamped as in NumPy.
Value slice(Operand x, const Axes& axes, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
            const std::vector<std::int64_t>& steps = {});
Value concat(const std::vector<Value>& parts, std::int64_t axis, Loc loc = Loc::current());
/// Broadcasts to `dims` (NumPy rules).
Value expand(Operand x, std::vector<std::int64_t> dims, Loc loc = Loc::current());
/// Constant padding; `before` and `after` have one count >= 0 per axis.
Value pad(Operand x, const std::vector<std::int64_t>& before, const std::vector<std::int64_t>& after, double value = 0);
/// x repeated repeats[d] >= 0 times along axis d, as numpy.tile with one count per axis: [a, b] -> [a, b, a, b].
Value tile(Operand x, const std::vector<std::int64_t>& repeats);
/// Each element along `axis` repeated `repeats` >= 0 times: [a, b] -> [a, a, b, b].
Value repeat_interleave(Operand x, std::int64_t repeats, std::int64_t axis);
/// The order along `axes` reversed (an empty list means all axes).
Value flip(Operand x, const Axes& axes);
/// Windows over the last axes, one entry per windowed axis; empty lists mean stride 1, dilation 1, no padding.
struct WindowOptions {
  std::vector<std::int64_t> kernel, stride = {}, dilation = {}, before = {}, after = {};
  double value = 0;  ///< of the padding
};
/// [..., extents] -> [..., windows, kernel], a view: nothing is copied where it can be read through. A kernel that spans more than
/// the padded extent is an error.
Value windows(Operand x, const WindowOptions& options);
/// Coordinates along `axis` of a tensor of this shape, as i32.
Value iota(Graph& graph, Shape shape, std::int64_t axis, Loc loc = Loc::current());

// ---- convolutions
/// One entry per spatial axis; a single entry counts for all of them, an empty list means 1 (stride, dilation) or 0.
struct ConvOptions {
  std::vector<std::int64_t> stride = {}, padding = {}, dilation = {};
  std::vector<std::int64_t> padding_after = {};   ///< where it differs from `padding`, which is then before the data
  std::vector<std::int64_t> output_padding = {};  ///< conv_transpose: further positions at the end
  std::int64_t groups = 1;
};
/// x [N, C, L] or [N, C, H, W] with w [Co, C / groups, kernel...], plus bias [Co] if given -> [N, Co, windows...]; cross-correlation, zero
/// padding. Groups that do not divide the channels, or a kernel larger than the padded input, are errors.
Value conv(Operand x, Operand w, const ConvOptions& options = {}, std::optional<Value> bias = std::nullopt);
/// The transposed convolution: x [N, Co, ...] with w [Co, C / groups, kernel...] -> [N, C, (n - 1) stride - padding + dilation (kernel - 1)
/// + output_padding + 1]; bias [C].
Value conv_transpose(Operand x, Operand w, const ConvOptions& options = {}, std::optional<Value> bias = std::nullopt);

// ---- pooling over the one or two spatial axes of x [N, C, ...]
/// One entry per spatial axis; a single entry counts for all of them.
struct PoolOptions {
  std::vector<std::int64_t> kernel;
  std::vector<std::int64_t> stride = {};         ///< empty: the kernel
  std::vector<std::int64_t> padding = {};        ///< before the data, and behind them unless padding_after is given; at most half of the
                                                 ///< kernel's span
  std::vector<std::int64_t> padding_after = {};
  std::vector<std::int64_t> dilation = {};       ///< empty: 1
  bool ceil_mode = false;                        ///< a last window that is only partly there counts, if it starts before the end of x
  bool count_include_pad = true;                 ///< avg_pool: padding counts in the divisor (what ceil_mode adds never does)
};
/// Padding never wins; NaN does. The gradient goes to the first of equal values in row-major order. A kernel larger than the padded
/// input, or padding of more than half a kernel, is an error.
Value max_pool(Operand x, const PoolOptions& options);
struct MaxPoolResult {
  Value values;
  Value indices;  ///< i32: the linear index of each value in the spatial axes of x
};
MaxPoolResult max_pool_with_indices(Operand x, const PoolOptions& options);
Value avg_pool(Operand x, const PoolOptions& options);
/// [N, C, ...] -> [N, C, 1...]
Value global_max_pool(Operand x);
Value global_avg_pool(Operand x);
/// Windows from floor(i n / out) to ceil((i + 1) n / out) of an axis of n, as in PyTorch; a single entry counts for all axes. Max: the
/// result's extents must divide x's.
Value adaptive_max_pool(Operand x, const std::vector<std::int64_t>& out);
Value adaptive_avg_pool(Operand x, const std::vector<std::int64_t>& out);

// ---- resizing
enum class ResizeMode : std::uint8_t { Nearest, Linear, Cubic };
/// Where result o lies in the input, with r = input extent / result extent (or 1 / scale): (o + 0.5) r - 0.5; o (in - 1) / (out - 1);
/// o r. (ONNX: half_pixel, align_corners, asymmetric. PyTorch: align_corners=False, True, and "nearest".)
enum class ResizeCoordinates : std::uint8_t { HalfPixel, AlignCorners, Asymmetric };
/// ONNX: floor, ceil, round_prefer_floor, round_prefer_ceil. PyTorch's "nearest" is Asymmetric with Floor, its "nearest-exact"
/// HalfPixel with PreferCeil.
enum class NearestRounding : std::uint8_t { Floor, Ceil, PreferFloor, PreferCeil };
struct ResizeOptions {
  ResizeMode mode = ResizeMode::Nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::HalfPixel;
  NearestRounding rounding = NearestRounding::PreferFloor;  ///< Nearest only
  double cubic_a = -0.75;                                   ///< Cubic only
};
/// x [..., H, W] -> [..., sizes]: the last one or two axes (as many as `sizes` lists); beyond the border the edge is repeated, no
/// antialiasing. Nearest by whole factors costs nothing.
Value resize(Operand x, std::vector<std::int64_t> sizes, ResizeOptions options = {});
/// The same to floor(extent * scale); coordinates use the scales as they are given.
Value resize_by(Operand x, const std::vector<double>& scales, ResizeOptions options = {});

// ---- normalization; y is shaped as x, eps > 0 is added to the variance (biased: divided by the count). Statistics keep their
// digits when the mean is far above the deviation. An empty or non-float x, or a scale or bias of another shape, is an error.
/// Over the last `axes` axes; scale and bias have their extents.
Value layer_norm(Operand x, std::optional<Value> scale = {}, std::optional<Value> bias = {}, double eps = 1e-5,
                 std::int64_t axes = 1);
/// x / sqrt(mean(x^2) + eps) * scale over the last `axes` axes.
Value rms_norm(Operand x, std::optional<Value> scale = {}, double eps = 1e-6, std::int64_t axes = 1);
/// x [N, C, ...] over each of `groups` runs of channels and all positions; scale and bias [C]. C must be a multiple of groups.
Value group_norm(Operand x, std::int64_t groups, std::optional<Value> scale = {}, std::optional<Value> bias = {},
                 double eps = 1e-5);
/// x [N, C, spatial...] over the positions of each channel; scale and bias [C].
Value instance_norm(Operand x, std::optional<Value> scale = {}, std::optional<Value> bias = {}, double eps = 1e-5);
/// Inference: x [N, C, ...] with the statistics given, per channel; mean, variance, scale and bias [C].
Value batch_norm(Operand x, Value mean, Value variance, std::optional<Value> scale = {}, std::optional<Value> bias = {},
                 double eps = 1e-5);
/// Training: x [N, C, ...] with the statistics of the batch (more than one value per channel, else an error). Assigns
/// (1 - momentum) * running + momentum * batch to the states running_mean and running_variance [C]; the running variance is
/// unbiased, as in PyTorch.
Value batch_norm_training(Operand x, Value running_mean, Value running_variance, std::optional<Value> scale = {},
                          std::optional<Value> bias = {}, double momentum = 0.1, double eps = 1e-5);

// ---- attention
struct AttentionOptions {
  std::optional<double> scale = {};  ///< of q k^T; unset: 1 / sqrt(head_dim)
  /// A query sees the keys up to its own position alone. Key j is at position j, query i at query_offset + i, or at
  /// position[batch] + i. With as many queries as keys the offset is 0 unless set; with other lengths one of the two must be set.
  bool causal = false;
  /// With causal: a query sees at most this many keys, the latest up to itself; 0: all of them.
  std::int64_t window = 0;
  std::optional<std::int64_t> query_offset = {};
  /// i32 [B]: the position of each sequence's first query, so that one plan decodes at any position. Keys that k and v do not
  /// have (positions from Sk on) are simply not seen.
  std::optional<Value> position = {};
  /// f32, added to the scores; or boolean, true where a query sees a key. Broadcasts to [B, H, Sq, Sk]. A sum of -1e30 or less
  /// masks. An f32 mask has a gradient, which costs memory for all scores.
  std::optional<Value> mask = {};
  /// k and v are ring buffers: slot j holds the latest position up to the last query's that is j modulo Sk. Needs causal, window,
  /// and Sk >= window + Sq - 1.
  bool ring = false;
};
/// softmax(scale q k^T + mask) v per head: q [B, H, Sq, D], k and v [B, KV, Sk, D] -> [B, H, Sq, D], D from 1 to 256. H is a
/// multiple of KV: head h uses KV head h / (H / KV). A query that sees no key gives 0, and no gradient. Never holds the scores.
/// Views of [B, S, heads, D] through permute cost nothing, before and behind.
Value attention(Operand q, Operand k, Operand v, const AttentionOptions& options = {});
struct AttentionResult {
  Value out;  ///< [B, H, Sq, D]
  Value lse;  ///< [B, H, Sq]: logsumexp of each query's scores; -inf where it sees no key
};
AttentionResult attention_with_lse(Operand q, Operand k, Operand v, const AttentionOptions& options = {});

// ---- rotary position embedding
struct RopeScaling {
  enum class Kind : std::uint8_t {
    None,
    Linear,  ///< positions / factor
    Ntk,     ///< base * factor^(d / (d - 2))
    Llama3,  ///< factor, original_length, low_freq_factor, high_freq_factor
    Yarn,    ///< factor, original_length, beta_fast, beta_slow, attention_factor
  };
  Kind kind = Kind::None;
  double factor = 1;
  double original_length = 0;  ///< positions the model was trained on first
  double low_freq_factor = 1, high_freq_factor = 4;
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor = {};  ///< on what is rotated; unset: 0.1 ln(factor) + 1
};
struct RopeOptions {
  double base = 10000;
  bool interleaved = false;     ///< pairs (x[2i], x[2i + 1]), as in GPT-J; else (x[i], x[i + d / 2]), as in Llama's published weights
  std::int64_t rotary_dim = 0;  ///< d: the first elements of each row, which alone are rotated; 0: all
  std::int64_t offset = 0;      ///< position of row 0
  /// i32 [S], or [B, S] with B the first axis of x: each row's position, below max_positions, the rows of the tables. One
  /// outside sets the step's status word (Error OutOfRange).
  std::optional<Value> positions = {};
  std::int64_t max_positions = 0;
  RopeScaling scaling = {};
};
/// x [..., S, D]: pair i of a row at position p turns by p * base^(-2i / d), scaled. Tables come from double arithmetic.
Value rope(Operand x, const RopeOptions& options = {});

// ---- indexing. Indices are i32 or i64. One outside its axis, a negative one too, sets the step's status word (Error OutOfRange
// naming op and line) and reads or writes nothing; constant indices are checked at build time.
/// x[:axis] ++ indices.shape ++ x[axis + 1:]: slices along `axis` (NumPy take). Its gradient adds up repeated slices.
Value gather(Operand x, Operand indices, std::int64_t axis = 0);
/// y[..., i, ...] = x[..., indices[..., i, ...], ...]: x and indices have equal ranks; axes other than `axis` broadcast.
Value gather_elements(Operand x, Operand indices, std::int64_t axis);
/// Rows of table [V, D]: ids [...] -> [..., D].
Value embedding(Operand table, Operand ids);
/// indices [...] -> f32 [..., depth]: 1 at the index, else 0.
Value one_hot(Operand indices, std::int64_t depth);
/// x with updates[..., i, ...] at [..., indices[..., i, ...], ...] along `axis`. updates has x's other extents; indices broadcast
/// to updates. The last in row-major order wins where an index repeats.
Value scatter(Operand x, Operand indices, Operand updates, std::int64_t axis);
/// The same, added to x, in a fixed order.
Value scatter_add(Operand x, Operand indices, Operand updates, std::int64_t axis);

// ---- scans and orders
/// Running sums along `axis` (floats, i32 modulo 2^32, u32): y[i] = x[0] + ... + x[i]; exclusive: without x[i]; reverse: from the
/// end. The order of the additions depends on the shape alone. Error(InvalidArgument) for an axis out of range.
Value cumsum(Operand x, std::int64_t axis, bool exclusive = false, bool reverse = false);
struct SortResult {
  Value values, indices;  ///< indices: i32 positions along the axis
};
/// Floats, i32 or u32 along `axis` in order. Stable: equal values keep their order (ascending index), descending too; NaN counts as
/// the largest, -0 equals 0. Gradients go to where the values came from.
SortResult sort(Operand x, std::int64_t axis = -1, bool descending = false);
/// The first k of sort(x, axis, largest): the k largest (or smallest) in order. Error(OutOfRange) unless 0 <= k <= extent.
SortResult topk(Operand x, std::int64_t k, std::int64_t axis = -1, bool largest = true);

// ---- key-value caches
/// The cache [B, KV, C, D] with rows [B, KV, S, D] at positions position .. position + S - 1 of each sequence; `position` is i32, one
/// per sequence [B] or one for all (a number, or rank 0). ring: modulo C (of more than C rows the last C are kept). Who must see the
/// new rows reads the result; assigned to the state that `cache` is, it is written in place. Rows outside are not written, and a
/// position outside [0, C - S] (ring: below 0) makes the step fail (Error OutOfRange); constants are refused when the graph is built.
Value cache_write(Operand cache, Operand rows, Operand position, bool ring = false);
/// The inverse: rows position .. position + rows - 1 of each sequence, [B, KV, rows, D].
Value cache_read(Operand cache, Operand position, std::int64_t rows, bool ring = false);
/// Which position each slot of a ring holds after `count` rows (i32 [] or [B]) were written: i32 [C] or [B, C]; below 0: none yet.
Value ring_positions(Operand count, std::int64_t capacity);
struct KvCache {
  Value keys, values;  ///< [B, KV, C, D]
  bool ring = false;
};
/// Two f32 states name/keys and name/values of shape [B, KV, C, D], zero at first.
KvCache kv_cache(Graph& graph, std::string_view name, Shape shape, bool ring = false, Loc loc = Loc::current());
/// Writes keys and values [B, KV, S, D] at `position`, assigns the states, and returns what attention of this step must read:
///   KvCache now = cache_append(cache, k, v, position);
///   attention(q, now.keys, now.values, {.causal = true, .position = position, .ring = now.ring, ...});
/// A ring of C slots serves a window of W with up to S new rows if C >= W + S - 1: older slots are overwritten before they are read.
KvCache cache_append(const KvCache& cache, Operand keys, Operand values, Operand position);

// ---- random (Philox4x32-10: key = seed state, counter = element, step, stream; the stream id is fixed when the node is built)
Value random_uniform(Graph& graph, Shape shape, Loc loc = Loc::current());  ///< f32 in [0, 1), 24 bits
Value random_normal(Graph& graph, Shape shape, Loc loc = Loc::current());
// Training draws by the state aeshna.step (and the micro-step), so a resumed run draws what the unbroken one would have; inference
// by the state aeshna.draw, which counts its steps. Error(InvalidArgument) for impossible bounds.
Value random_uniform(Graph& graph, Shape shape, double low, double high, Loc loc = Loc::current());    ///< f32 in [low, high)
Value random_normal(Graph& graph, Shape shape, double mean, double stddev, Loc loc = Loc::current());  ///< f32
Value random_bernoulli(Graph& graph, Shape shape, double p, Loc loc = Loc::current());  ///< boolean, true with probability p in [0, 1]
/// i32 in [low, high), at most 2^31 - 1 numbers; no number is more than (high - low) / 2^32 too likely.
Value random_int(Graph& graph, Shape shape, std::int64_t low, std::int64_t high, Loc loc = Loc::current());
/// An index drawn from softmax(logits) for each row of the last axis (Gumbel-max): i32 [...].
Value random_categorical(Operand logits);
/// 0 with probability p, else x / (1 - p). The mask is drawn anew each step and again, the same, in the backward pass. In a session
/// compiled for inference it is x itself, unless `always` (Monte Carlo dropout); forward() of a training session drops too, so
/// evaluate with an inference session over the same weights. Error(InvalidArgument) unless 0 <= p < 1.
Value dropout(Operand x, double p, bool always = false);

// ---- gradients
/// d(loss)/d(each of `wrt`) appended to the graph; loss is a scalar; a value that does not reach it gets zeros.
std::vector<Value> gradients(Value loss, const std::vector<Value>& wrt);

}  // namespace aeshna
