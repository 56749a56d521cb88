#pragma once
// ONNX's own test cases (Debian: libonnx-testdata): models with inputs and the outputs that they must give.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aeshna/import.h"
#include "aeshna/weights.h"

namespace aeshna::test {

/// Where the cases are; empty: not installed.
std::filesystem::path onnx_suite_root();

struct OnnxCase {
  std::string folder, name;  ///< "node", "test_abs"
  std::filesystem::path model;
  std::vector<std::filesystem::path> data_sets;  ///< of input_N.pb and output_N.pb
};
/// In the order of their names.
std::vector<OnnxCase> onnx_suite(const std::string& folder);

enum class Verdict : std::uint8_t {
  Pass,
  Refused,   ///< by name, with a reason
  Disputed,  ///< the data cannot be met: it contradicts the model or the specification, or is random; see `reason`
  Fail,
};
struct OnnxOutcome {
  Verdict verdict = Verdict::Pass;
  std::string reason;              ///< of a refusal or failure
  std::string refused_op;          ///< the op or "input", "output" that the refusal is about
  std::vector<std::string> bound;  ///< inputs whose values had to be known at load time
  std::map<std::string, std::int64_t> ops;
  std::int64_t opset = 0;  ///< of the default domain; 0: not imported
};

/// Imports the model, with the shapes of the test data, and compares its outputs. Inputs are bound if the import says that their
/// values must be known and they are small integers or scalars (shapes, axes, counts). Without a device: in the interpreter.
OnnxOutcome run_onnx_case(const OnnxCase& test, const std::optional<Device>& device = {}, bool f64_as_f32 = false);

}  // namespace aeshna::test
