// Learning-rate schedules (include/aeshna/optim.h).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "aeshna/optim.h"
#include "base/fail.h"

namespace aeshna {

double Schedule::factor(std::int64_t step) const {
  if (step < 0) fail(ErrorCode::InvalidArgument, "[schedule] step must be >= 0, found {}", step);
  if (warmup < 0) fail(ErrorCode::InvalidArgument, "[schedule] warmup must be >= 0, found {}", warmup);
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const std::int64_t since = step - warmup;
  switch (kind) {
    case Kind::Constant:
      return 1;
    case Kind::Step:
      if (step_every < 1) fail(ErrorCode::InvalidArgument, "[schedule] step_every must be >= 1, found {}", step_every);
      return std::pow(gamma, static_cast<double>(since / step_every));
    case Kind::Cosine: {
      if (total <= warmup) {
        fail(ErrorCode::InvalidArgument, "[schedule] total ({}) must be greater than warmup ({})", total, warmup);
      }
      const double progress = std::min(1.0, static_cast<double>(since) / static_cast<double>(total - warmup));
      return floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    }
  }
  internal_error("unknown schedule kind");
}

Schedule Schedule::step(std::int64_t every, double gamma, std::int64_t warmup) {
  Schedule schedule;
  schedule.kind = Kind::Step;
  schedule.step_every = every;
  schedule.gamma = gamma;
  schedule.warmup = warmup;
  schedule.factor(0);  // refuses bad arguments where they are written
  schedule.factor(warmup);
  return schedule;
}

Schedule Schedule::cosine(std::int64_t total, std::int64_t warmup, double floor) {
  Schedule schedule;
  schedule.kind = Kind::Cosine;
  schedule.total = total;
  schedule.warmup = warmup;
  schedule.floor = floor;
  schedule.factor(0);
  schedule.factor(warmup);
  return schedule;
}

}  // namespace aeshna
