#pragma once
// Whether what an engine computed is right: docs/benchmark.md, "Gates".
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/json_field.h"

namespace aeshna::bench {

inline constexpr std::uint64_t kSchema = 1;  ///< of every JSON file of the benchmark

// Limits, in the order of docs/benchmark.md.
inline constexpr double kForwardLimit = 1e-2;   ///< output and loss: less than this
inline constexpr double kBackwardLimit = 5e-2;  ///< total norm and vector of norms: less than this
inline constexpr double kGradientFloor = 1e-6;  ///< of the total norm: the least denominator of a parameter's error
/// The largest error of a parameter's gradient.
double elementwise_limit(std::string_view workload, std::string_view contract);

struct ForwardGate {
  bool pass = false;
  std::optional<double> output_rel_l2, loss_error;  ///< nullopt: there was nothing to measure
};
struct BackwardGate {
  bool pass = false;
  std::optional<double> total_norm_error, norm_vector_error;
};
struct ElementwiseGate {
  bool pass = false;
  double limit = 0;
  std::string worst_name;
  std::optional<double> worst_error, median;
};

/// One candidate's gates. Errors that are not finite are nullopt; `reasons` says so.
struct Verdict {
  std::string engine, mode;  ///< "" if the file does not say
  ForwardGate forward;
  std::optional<BackwardGate> backward;  ///< training only, as the next
  std::optional<ElementwiseGate> elementwise;
  std::vector<std::string> reasons;  ///< of each failure, beginning with the gate's name
  bool pass() const { return reasons.empty(); }
};

/// What is judged; empty: the candidate's metadata say it.
struct GateSubject {
  std::string workload, phase, contract;
  std::string config = {}, gpu = {};  ///< from the metadata alone
};

struct GateResult {
  GateSubject subject;
  Verdict candidate;
  std::optional<Verdict> baseline;
};

/// Compares files of tensors, one tensor at a time. Error(InvalidArgument) if the subject and the metadata disagree, or neither says
/// what is needed.
GateResult judge(const std::filesystem::path& reference, const std::filesystem::path& candidate,
                 const std::optional<std::filesystem::path>& baseline, GateSubject subject);

std::string json_text(const GateResult& result);
GateResult read_gate(const JsonField& document);
/// Lines of PASS and FAIL with the numbers.
std::string describe(const GateResult& result);

}  // namespace aeshna::bench
