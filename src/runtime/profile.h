#pragma once
// Where the time of a session's step goes: every dispatch timed alone on the device, and what it could take at best.
//
// profile() first times ordinary steps of the unmodified session by the wall clock: that is the session's speed, and nothing here
// replaces it. Then it runs steps from lists of its own, recorded once, in which a barrier and a timestamp stand before and after
// each dispatch. The sum of these times is no step time: an ordinary step overlaps the dispatches of a barrier group, and pays
// for barriers between groups (below some 50 us a dispatch the two disagree for that reason).
//
// Each of these passes is a real step: it reads the inputs that were set, writes outputs, assigns states, and updates parameters
// if the session updates. A training session with update = false and no states is left as it was.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "aeshna/session.h"
#include "compile/plan.h"

namespace aeshna {

/// What the device reaches at best, measured by profiling small graphs on it.
struct Ceilings {
  double bytes_per_s = 0;            ///< x + 1 on tensors that no cache holds
  double flop_per_s = 0;             ///< a large f32 product
  double contract_flop_per_s = 0;    ///< the same under the session's contract
  double dispatch_us = 0;            ///< a dispatch of one element, alone between timestamps: no row can be below it
  double dependent_dispatch_us = 0;  ///< one such of a chain, each behind a barrier, as ordinary steps have them
};

/// A dispatch or a copy of the plan.
struct ProfileRow {
  std::uint32_t step = 0;   ///< index in Plan.steps
  std::uint32_t group = 0;  ///< barrier group
  Segment segment = Segment::Forward;
  std::string
      site;  ///< where in the model: a name of the user's graph, such as "layers.3.mlp.gate_proj"; "~NAME": behind it
  std::string ops;    ///< ops of the user's graph that it computes or differentiates, joined by '+'
  std::string nodes;  ///< the same after lowering
  std::string line;   ///< where the user wrote the first of them
  std::string
      family;  ///< "matmul", "conv", "gemv", "attention", "attention dq", "attention dkv", "reduction", "pointwise", ...
  std::string variant;           ///< of the kernel: tile, split
  std::string shape;             ///< "batch x m x n x k", an iteration space, or that of the first operand
  std::uint64_t workgroups = 0;  ///< 0: a copy
  std::array<std::uint32_t, 3> local{1, 1, 1};
  std::uint64_t bytes_read = 0, bytes_written = 0;  ///< ranges of its operands in the plan
  /// What it must move at least: operands once, without what it skips (a gather reads few rows of its table), without workspace.
  double bytes = 0;
  /// 2 for each multiplication and addition of a product, a convolution or attention (masked pairs do not count); elsewhere 1 for
  /// each op on each element.
  double flop = 0;
  bool product = false;   ///< its FLOP are those of a product
  bool contract = false;  ///< a product that may use what the contract allows
  double us = 0;          ///< median
  double min_us = 0;

  double peak(const Ceilings& c) const { return contract ? c.contract_flop_per_s : c.flop_per_s; }
  /// At these ceilings: the slower of its traffic and its arithmetic.
  double bound_us(const Ceilings& c) const;
  double excess_us(const Ceilings& c) const { return us - bound_us(c); }
};

struct Profile {
  std::vector<ProfileRow> rows;  ///< in the order of the plan
  Ceilings ceilings;
  std::vector<double> wall_ms;  ///< ordinary steps, each waited for
  double wall_median_ms = 0;
  double device_ms = 0;        ///< the ordinary lists of a step from first to last command, by timestamps; median
  std::uint32_t barriers = 0;  ///< between barrier groups of an ordinary step
  std::uint32_t repeats = 0;   ///< times of each row

  double sum_us() const;
};

/// Rows that have segment, kernel, shape and ops in common, such as those of equal layers.
struct ProfilePattern {
  std::vector<std::uint32_t> rows;  ///< indices
  double us = 0, bound_us = 0, bytes = 0, flop = 0;
  double excess_us() const { return us - bound_us; }
};
/// Those that equal `key` of their first row are one; by excess, the largest first.
std::vector<ProfilePattern> group_rows(const Profile& profile, std::string (*key)(const ProfileRow&));
std::string pattern_key(const ProfileRow& row);

/// Everything about the rows of a session but their times; dispatches without workgroups and empty copies have none.
std::vector<ProfileRow> profile_rows(const Session::Impl& session);

struct ProfileOptions {
  std::uint32_t repeats = 5;   ///< of each dispatch
  double wall_seconds = 2;     ///< ordinary steps are timed for about so long, 3 to 100 of them
  double warm_seconds = 0.25;  ///< of steps before: devices lower their clocks when idle
  bool ceilings = true;
};
/// Every input must have been set. Error(Unsupported) if the device has no timestamps; errors of steps as Session::wait.
Profile profile(Session& session, const ProfileOptions& options = {});

Ceilings measure_ceilings(const Device& device, Contract contract);

}  // namespace aeshna
