#pragma once
// What compilation produces and a Session replays: kernels, steps in barrier groups, and where every value lives.
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aeshna/graph.h"
#include "ir/device_types.h"
#include "ir/kernel.h"

namespace aeshna {

/// Where a tensor's bytes are. Everything but Arena is pinned: it has a buffer of its own.
enum class Home : std::uint8_t {
  Arena,
  Input,
  Parameter,
  State,
  Output,
  Constant,
  Workspace,  ///< split-K partials; shared by dispatches of different barrier groups
  Counters,   ///< zero before and after every launch
};

/// A tensor that exceeds Caps.max_buffer_size has several placements, which follow one another: one for each of its parts (see
/// ir/device_types.h, part_elements). Where a name stands for a placement, it is the first.
struct Placement {
  Home home = Home::Arena;
  std::string name;         ///< leaf or output name; for arenas the node's name or op, for dumps
  TensorType type;
  std::uint32_t arena = 0;  ///< Arena/Workspace: which arena buffer
  std::uint64_t offset = 0; ///< Arena: bytes into it, a multiple of Caps.storage_alignment
  std::uint64_t bytes = 0;  ///< on the device (see device_bytes), of this part
  std::uint32_t part = 0;
  std::uint64_t first_byte = 0;  ///< of the tensor, where this part begins
  std::uint32_t constant = 0;  ///< Constant: index into Plan.constants
  std::uint32_t first_group = 0, last_group = 0;  ///< Arena: barrier groups in which it is live, inclusive
};

struct PlanOperand {
  std::uint32_t placement = 0;
  std::uint64_t offset = 0;  ///< bytes from the placement's start (row splits), aligned
  std::uint64_t bytes = 0;   ///< exact range of the descriptor
  bool read = false, written = false;
};

/// A distinct kernel: steps with equal keys share it.
struct PlanKernel {
  KernelSource source;
  std::array<std::uint32_t, 3> local{1, 1, 1};
  std::uint32_t shared_bytes = 0;
  std::string name;
};

struct PlanStep {
  enum class Kind : std::uint8_t { Dispatch, Copy } kind = Kind::Dispatch;
  Segment segment = Segment::Forward;
  std::uint32_t group = 0;  ///< barrier group; non-decreasing; a barrier stands between different groups
  KernelSpec spec;          ///< Dispatch
  std::uint32_t kernel = 0; ///< Dispatch with workgroups: index into Plan.kernels
  std::vector<std::uint32_t> push;
  std::vector<PlanOperand> operands;  ///< Dispatch: in binding order (workspace, counters last); Copy: source, destination
};

struct StageTime {
  std::string stage;
  double milliseconds = 0;
};

struct MemoryReport {
  std::uint64_t logical_bytes = 0;   ///< every transient tensor in memory of its own
  std::uint64_t arena_bytes = 0;     ///< what the arenas take
  std::uint64_t pinned_bytes = 0;    ///< parameters, states, inputs, outputs, constants
  std::uint64_t workspace_bytes = 0;
};

struct Plan {
  std::shared_ptr<const Graph> graph;  ///< after all graph stages
  std::vector<Placement> placements;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::vector<std::uint64_t> arenas;  ///< bytes of each arena buffer (each within Caps.max_buffer_size)
  std::vector<Literal> constants;
  std::map<std::string, std::uint32_t, std::less<>> inputs, parameters, states, outputs;  ///< name -> placement
  std::uint64_t counters = 0;  ///< u32 counters in the Counters placement
  MemoryReport memory;
  std::vector<StageTime> times;
  std::vector<std::string> notes;  ///< rejected candidates, copies that replace in-place updates
  std::uint32_t barrier_groups = 0;
  /// What each check is about, with its source line; word 1 of the state and output "aeshna.status" (i32[2]) is a number in this
  /// list, from 1, word 0 the ErrorCode (both 0: no check has failed). See compile/reserved.h.
  std::vector<std::string> checks;
};

}  // namespace aeshna
