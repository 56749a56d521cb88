#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace aeshna {

/// p -= lr * d, with d = g + weight_decay * p; momentum m: v = m * v + (1 - dampening) * d, d = v (Nesterov: d + m * v). As torch.optim.SGD.
struct Sgd {
  float lr = 1e-2f;
  float momentum = 0;
  float dampening = 0;
  float weight_decay = 0;
  bool nesterov = false;
};
/// Kingma & Ba 2015; weight_decay is L2 in the gradient.
struct Adam {
  float lr = 1e-3f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0;
};
/// Loshchilov & Hutter 2019; decoupled weight decay: p *= 1 - lr * weight_decay.
struct AdamW {
  float lr = 1e-3f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 1e-2f;
};
/// Ziyin et al. 2020 (LaProp): normalise by the second moment first, then momentum.
struct LaProp {
  float lr = 4e-4f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float eps = 1e-15f;
  float weight_decay = 0;  ///< decoupled
};
using Optimizer = std::variant<Sgd, Adam, AdamW, LaProp>;

/// Learning rate of step t (0-based) as a factor of the optimizer's lr. Evaluated on the host, written as a rank-0 input.
struct Schedule {
  enum class Kind : std::uint8_t { Constant, Step, Cosine } kind = Kind::Constant;
  std::int64_t warmup = 0;      ///< linear from 1/warmup to 1 over the first `warmup` steps
  std::int64_t total = 0;       ///< Cosine: steps until `floor` is reached, warm-up included
  std::int64_t step_every = 0;  ///< Step: multiply by `gamma` every so many steps after the warm-up
  double gamma = 0.1;
  double floor = 0;  ///< Cosine: final factor
  double factor(std::int64_t step) const;
  static Schedule constant() { return {}; }
  static Schedule step(std::int64_t every, double gamma, std::int64_t warmup = 0);
  static Schedule cosine(std::int64_t total, std::int64_t warmup = 0, double floor = 0);
};

struct TrainingOptions {
  Schedule schedule = {};
  std::optional<float> clip_norm = {};  ///< gradient clipping by global L2 norm
  std::uint32_t accumulate = 1;    ///< micro-steps per update; the loss is averaged over them
  bool check_gradients = true;     ///< a non-finite gradient norm makes the step bad, as a non-finite loss always does
};

}  // namespace aeshna
