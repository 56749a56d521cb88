#pragma once
// Names that the compiler gives to leaves and outputs of its own; users' names may not begin with "aeshna.".
#include <string_view>

namespace aeshna::reserved {

inline constexpr std::string_view prefix = "aeshna.";

// Inputs, rank 0, written by the host.
inline constexpr std::string_view learning_rate = "aeshna.lr";  ///< f32
inline constexpr std::string_view first_micro =
    "aeshna.first_micro";  ///< i32, only if accumulate > 1: nonzero on the first micro-step of an update

// States.
inline constexpr std::string_view step = "aeshna.step";         ///< u32 rank 0: updates made so far
inline constexpr std::string_view draw = "aeshna.draw";         ///< u32 rank 0, inference with random ops: steps made so far
inline constexpr std::string_view accumulator = "aeshna.acc/";  ///< + parameter: f32 sum of the micro-steps' gradients
inline constexpr std::string_view micro_step =
    "aeshna.micro_step";  ///< u32 rank 0, only with random ops and accumulate > 1
inline constexpr std::string_view bad =
    "aeshna.bad";  ///< i32 rank 0: first failed check of this update's micro-steps, plus 1; 0: none
/// i32[2], state and output: {ErrorCode, number in Plan.checks from 1} of the first failed check since the host last wrote zeros
/// to the state; {0, 0}: none. Sticky, so that no error is lost when several steps are in flight.
inline constexpr std::string_view status = "aeshna.status";

// Outputs.
inline constexpr std::string_view forward_status =
    "aeshna.status.forward";  ///< i32[2]: the same for this forward pass alone (training graphs)
inline constexpr std::string_view grad_norm = "aeshna.grad_norm";  ///< f32 rank 0, before clipping
inline constexpr std::string_view gradient = "grad/";              ///< + name of the value

// Placeholders between the stages `train` and `status`, never in a finished graph: boolean inputs.
inline constexpr std::string_view ok = "aeshna.ok";              ///< no check of this update failed
inline constexpr std::string_view micro_ok = "aeshna.micro_ok";  ///< no check of this micro-step failed

}  // namespace aeshna::reserved
