#include "bench/gate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "base/fail.h"
#include "bench/statistics.h"
#include "bench/tensor_math.h"
#include "io/safetensors.h"

namespace aeshna::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kGradient = "grad/";
constexpr std::size_t kNamed = 3;  ///< names of a list that a message gives

/// |difference| / scale; nothing over nothing is no error, and what is not finite is infinitely wrong.
double relative(double difference, double scale) {
  if (difference == 0) return std::isfinite(scale) ? 0 : kInfinity;
  const double error = std::abs(difference) / scale;
  return std::isfinite(error) ? error : kInfinity;
}

std::optional<double> finite(double error) { return std::isfinite(error) ? std::optional(error) : std::nullopt; }

/// The loss with all its digits, from the metadata, else from the tensor.
std::optional<double> loss_of(const SafetensorsFile& file) {
  if (const auto text = file.metadata().find("loss"); text != file.metadata().end()) {
    char* end = nullptr;
    const double value = std::strtod(text->second.c_str(), &end);
    if (text->second.empty() || *end != '\0')
      fail(ErrorCode::CorruptFile, "{}: the metadata's loss '{}' is no number", file.name(), text->second);
    return value;
  }
  if (file.find("loss") == nullptr) return std::nullopt;
  const Literal loss = file.literal("loss");
  if (loss.type().shape.elements() != 1)
    fail(ErrorCode::CorruptFile, "{}: 'loss' has type {}, not one element", file.name(), loss.type().to_string());
  return loss.at(0);
}

std::string metadata_of(const SafetensorsFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

/// "a, b, c and 7 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kNamed) text += formatted(" and {} more", names.size() - kNamed);
  return text;
}

/// Judges one file against the reference.
class Judge {
 public:
  Judge(const SafetensorsFile& reference, const SafetensorsFile& candidate, double limit, bool training)
      : reference_(reference), candidate_(candidate) {
    verdict_.engine = metadata_of(candidate, "engine");
    verdict_.mode = metadata_of(candidate, "mode");
    forward(training);
    if (training) gradients(limit);
  }
  Verdict take() { return std::move(verdict_); }

 private:
  /// Notes a failure; false, for the gate's `pass`.
  bool failed(std::string reason) {
    verdict_.reasons.push_back(std::move(reason));
    return false;
  }
  bool within(double error, double limit, bool equal_passes, const char* what) {
    if (equal_passes ? error <= limit : error < limit) return true;
    return failed(std::isfinite(error) ? formatted("{} {:.3g}, limit {:g}", what, error, limit)
                                       : formatted("{} is not finite", what));
  }

  void forward(bool training) {
    ForwardGate& gate = verdict_.forward;
    gate.pass = true;
    const SafetensorsEntry *want = reference_.find("output"), *have = candidate_.find("output");
    if (want == nullptr) fail(ErrorCode::CorruptFile, "{}: no tensor 'output'", reference_.name());
    if (have == nullptr) {
      gate.pass = failed("forward: no output");
    } else if (have->type.shape != want->type.shape) {
      gate.pass = failed(formatted("forward: output has shape {}, the reference {}", have->type.shape.to_string(),
                                   want->type.shape.to_string()));
    } else {
      const Squares sums = compare(reference_.literal("output"), candidate_.literal("output"));
      const double error = relative(std::sqrt(sums.difference), std::sqrt(sums.reference));
      gate.output_rel_l2 = finite(error);
      gate.pass = within(error, kForwardLimit, false, "forward: relative L2 of the output");
    }
    const std::optional<double> wanted = loss_of(reference_), loss = loss_of(candidate_);
    if (training && !(wanted && loss)) {
      gate.pass = failed(formatted("forward: no loss in {}", (wanted ? candidate_ : reference_).name()));
    } else if (wanted && loss) {
      const double error = relative(2 * (*loss - *wanted), std::abs(*loss) + std::abs(*wanted));
      gate.loss_error = finite(error);
      gate.pass = within(error, kForwardLimit, false, "forward: error of the loss") && gate.pass;
    }
  }

  /// Sums of every gradient that both files have in the same shape; whether that is all of them.
  bool collect() {
    std::vector<std::string> missing, extra, shapes;
    for (const SafetensorsEntry& entry : candidate_.tensors()) {
      if (entry.name.starts_with(kGradient) && reference_.find(entry.name) == nullptr)
        extra.push_back(entry.name.substr(kGradient.size()));
    }
    for (const SafetensorsEntry& entry : reference_.tensors()) {
      if (!entry.name.starts_with(kGradient)) continue;
      std::string name = entry.name.substr(kGradient.size());
      const SafetensorsEntry* have = candidate_.find(entry.name);
      if (have == nullptr) {
        missing.push_back(name);
      } else if (have->type.shape != entry.type.shape) {
        shapes.push_back(formatted("{} {}, not {}", name, have->type.shape.to_string(), entry.type.shape.to_string()));
      } else {
        sums_.emplace(std::move(name), compare(reference_.literal(entry.name), candidate_.literal(entry.name)));
      }
    }
    bool all = true;
    const auto complain = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty()) all = failed(formatted("backward: {} gradients {}: {}", names.size(), what, listed(names)));
    };
    complain("missing", missing);
    complain("that the reference lacks", extra);
    complain("of another shape", shapes);
    if (sums_.empty() && all) all = failed("backward: there are no gradients");
    return all;
  }

  void gradients(double limit) {
    const bool all = collect();
    Squares total;
    double norm_difference = 0;  // of the vectors of norms
    for (const auto& [name, sums] : sums_) {
      total.reference += sums.reference;
      total.candidate += sums.candidate;
      const double difference = std::sqrt(sums.candidate) - std::sqrt(sums.reference);
      norm_difference += difference * difference;
    }
    BackwardGate& backward = verdict_.backward.emplace();
    ElementwiseGate& elementwise = verdict_.elementwise.emplace();
    backward.pass = elementwise.pass = all;
    elementwise.limit = limit;
    if (sums_.empty()) return;

    const double total_error =
        relative(std::sqrt(total.candidate) - std::sqrt(total.reference), std::sqrt(total.reference));
    const double vector_error = relative(std::sqrt(norm_difference), std::sqrt(total.reference));
    backward.total_norm_error = finite(total_error);
    backward.norm_vector_error = finite(vector_error);
    backward.pass = within(total_error, kBackwardLimit, false, "backward: error of the total gradient norm") && all;
    backward.pass =
        within(vector_error, kBackwardLimit, false, "backward: relative L2 of the gradients' norms") && backward.pass;

    std::vector<double> errors;
    double worst = -1;
    for (const auto& [name, sums] : sums_) {
      const double scale = std::max(std::sqrt(sums.reference), kGradientFloor * std::sqrt(total.reference));
      errors.push_back(relative(std::sqrt(sums.difference), scale));
      if (errors.back() <= worst) continue;
      worst = errors.back();
      elementwise.worst_name = name;
    }
    elementwise.worst_error = finite(worst);
    elementwise.median = finite(quantile(errors, 0.5));
    const std::string what = "elementwise: error of " + elementwise.worst_name;
    elementwise.pass = within(worst, limit, true, what.c_str()) && all;
  }

  const SafetensorsFile &reference_, &candidate_;
  Verdict verdict_;
  std::map<std::string, Squares> sums_;  ///< by parameter
};

/// `given`, or what the file's metadata say, which must not disagree.
void settle(std::string& given, const SafetensorsFile& file, const char* key) {
  const std::string said = metadata_of(file, key);
  if (given.empty()) given = said;
  if (!said.empty() && said != given)
    fail(ErrorCode::InvalidArgument, "{} is of {} '{}', not '{}'", file.name(), key, said, given);
}

bool has_gradients(const SafetensorsFile& file) {
  return std::ranges::any_of(file.tensors(), [](const auto& entry) { return entry.name.starts_with(kGradient); });
}

}  // namespace

double elementwise_limit(std::string_view workload, std::string_view contract) {
  if (contract == "strict") return 1e-3;
  return workload == "resnet50" ? 5e-2 : 2e-2;  // its ReLUs flip on rounded inputs
}

GateResult judge(const std::filesystem::path& reference_path, const std::filesystem::path& candidate_path,
                 const std::optional<std::filesystem::path>& baseline_path, GateSubject subject) {
  const SafetensorsFile reference(reference_path), candidate(candidate_path);
  settle(subject.contract, candidate, "contract");
  settle(subject.gpu, candidate, "gpu");
  for (const SafetensorsFile* file : {&candidate, &reference}) {
    settle(subject.workload, *file, "workload");
    settle(subject.config, *file, "config");
    settle(subject.phase, *file, "phase");
  }
  if (subject.phase.empty()) subject.phase = has_gradients(reference) || has_gradients(candidate) ? "train" : "";
  const bool training = subject.phase == "train";
  if (training && (subject.workload.empty() || subject.contract.empty()))
    fail(ErrorCode::InvalidArgument,
         "{} does not say its workload and contract, on which the limit of the gradients "
         "depends: give --workload and --contract",
         candidate.name());
  const double limit = elementwise_limit(subject.workload, subject.contract);
  GateResult result{
      .subject = subject, .candidate = Judge(reference, candidate, limit, training).take(), .baseline = {}};
  if (baseline_path) result.baseline = Judge(reference, SafetensorsFile(*baseline_path), limit, training).take();
  return result;
}

}  // namespace aeshna::bench
