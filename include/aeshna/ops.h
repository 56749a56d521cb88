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

// ---- pooling

// ---- resizing

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

// ---- rotary position embedding

// ---- indexing

// ---- scans and orders

// ---- key-value caches

// ---- random (Philox4x32-10: key = seed state, counter = element, step, stream; the stream id is fixed when the node is built)
Value random_uniform(Graph& graph, Shape shape, Loc loc = Loc::current());  ///< f32 in [0, 1), 24 bits
Value random_normal(Graph& graph, Shape shape, Loc loc = Loc::current());

// ---- gradients
/// d(loss)/d(each of `wrt`) appended to the graph; loss is a scalar; a value that does not reach it gets zeros.
std::vector<Value> gradients(Value loss, const std::vector<Value>& wrt);

}  // namespace aeshna
