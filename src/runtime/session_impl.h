#pragma once
// What stands behind Session. Split by idea:
//   session_build.cpp   plan -> buffers on the device
//   session_record.cpp  plan -> command lists, recorded once
//   session_step.cpp    one step: a submission of recorded lists; bad steps
//   session_io.cpp      inputs and outputs
//   diagnose.cpp        the last step again, in the interpreter
//   session.cpp         the public calls, checkpoints
//   profile.cpp         steps with every dispatch timed; profile_rows.cpp: what each dispatch is
//
// Inputs. On unified memory set() writes into the input's device buffer, after waiting for the step that read it last.
// On discrete memory it writes the staging of the next slot, and the step copies what was set to the one device buffer
// of each input. Learning rate and counters, which the step itself writes, go through a slot everywhere: a word that is
// not waited for.
//
// Slots. Host memory that steps use (staging, small outputs) exists kSlots times, so that the host may prepare the next
// step while the device works on this one. A slot is used again only after its step has ended and its status has been
// looked at, so no bad step is lost.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/session.h"
#include "compile/pipeline.h"
#include "gpu/device.h"
#include "runtime/store.h"

namespace aeshna {

inline constexpr std::size_t kSlots = 2;
inline constexpr std::uint64_t kSmallOutput = 64 << 10;  ///< outputs up to this many bytes come back with every step

using Lists = std::vector<std::shared_ptr<gpu::CommandList>>;

/// Part of a segment, and how long it is estimated to take.
struct Chunk {
  std::shared_ptr<gpu::CommandList> list;
  double ms = 0;
};
using Segments = std::array<std::vector<Chunk>, 3>;

struct SessionInput {
  std::string name;
  TensorType type;
  Buffers buffers;                      ///< of its parts; none: the plan does not use it
  std::uint64_t staging = 0;            ///< offset in a slot's staging buffer
  bool hidden = false;
  bool direct = false;            ///< written by set(), not by the step: no slot's staging
  bool set = false;               ///< written at least once
  bool dirty = false;             ///< written since the last step
  std::uint32_t hidden_word = 0;  ///< hidden: what was written last
};

struct SessionOutput {
  std::string name;
  TensorType type;
  Buffers buffers;           ///< of its parts
  std::uint64_t offset = 0;  ///< bytes into the only buffer
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> readback;  ///< small: offset in a slot's readback buffer
  // Large: made at the first read.
  std::shared_ptr<gpu::Buffer> host;
  std::shared_ptr<gpu::CommandList> download;
};

struct Slot {
  std::shared_ptr<gpu::Buffer> staging, readback;
  Lists upload;                                  ///< one per input; null for inputs without staging
  std::shared_ptr<gpu::CommandList> upload_all;  ///< all staged inputs of the user, the usual case
  std::shared_ptr<gpu::CommandList> download;    ///< small outputs
  gpu::Ticket ticket = 0;
  bool pending = false;               ///< submitted, status not looked at
  std::optional<std::size_t> status;  ///< output that tells whether it was bad
  std::string_view pass;              ///< "step" or "forward", and its number: for messages
  std::int64_t number = 0;
};

/// The first bad step since the last wait.
struct BadStep {
  std::string_view pass;
  std::int64_t number = 0;
  std::int32_t code = 0, check = 0;
};

struct Session::Impl {
  Impl(const Graph& user_graph, const Weights& shared_weights, CompileOptions compile_options);
  ~Impl();  ///< waits for what is in flight

  // session_build.cpp
  void build();
  // session_record.cpp
  void record();
  std::shared_ptr<gpu::CommandList> record_copies(std::span<const gpu::CopyCommand> copies,
                                                  std::vector<std::shared_ptr<void>> owners, std::string_view what);
  // session_step.cpp
  enum class Pass { Forward, Step };
  void run(Pass pass) { run(pass, segments); }
  void run(Pass pass, const Segments& lists);        ///< a step of other lists, which compute the same
  std::array<bool, 3> segments_of(Pass pass) const;  ///< which ones the next one runs
  void wait();
  Slot& acquire();  ///< the next step's slot, free to write
  double learning_rate() const;
  void resync();  ///< host counters := what the device counts
  // session_io.cpp
  SessionInput& input(std::string_view name);
  void write_input(SessionInput& input, DType dtype, std::uint64_t elements, std::span<const std::byte> host);
  Literal read_output(std::string_view name);
  Literal read_previous(std::string_view name);
  std::vector<std::string> user_inputs() const;
  std::vector<std::string> user_outputs() const;
  // diagnose.cpp
  std::string diagnose();
  // session.cpp
  bool training() const { return options.mode == Mode::Training; }
  std::string optimizer_name() const;

  gpu::Device& device() const { return weights.impl().device.impl(); }

  std::shared_ptr<Graph> graph;  ///< the user's, copied
  CompileOptions options;
  Weights weights;
  Plan plan;
  std::vector<StageSeconds> times;

  // Build
  struct Place {
    std::shared_ptr<gpu::Buffer> buffer;
    std::uint64_t offset = 0;
  };
  std::vector<Place> places;           ///< of each placement of the plan
  std::shared_ptr<gpu::Buffer> empty;  ///< stands for operands without bytes
  std::vector<std::shared_ptr<gpu::Kernel>> kernels;
  std::vector<SessionInput> inputs;
  std::vector<SessionOutput> outputs;
  std::optional<std::size_t> status, forward_status;  ///< indices into outputs
  std::optional<std::size_t> lr, first_micro;         ///< indices into inputs
  /// The state aeshna.status: this session's own, since check numbers are those of its plan, and sessions share the
  /// store.
  std::shared_ptr<gpu::Buffer> status_state;
  std::array<std::vector<Weights::Impl::Tensor*>, 3> assigned;  ///< by segment: whose versions grow

  // Record
  Segments segments;
  std::array<Slot, kSlots> slots;
  std::optional<Segment> status_segment;  ///< the one that writes the status
  std::shared_ptr<gpu::CommandList> clear_status;

  // Step
  std::vector<gpu::CommandList*> batch;  ///< of one step; reserved once
  std::vector<std::size_t> cuts;         ///< where a submission of its own begins, to bound each in time; reserved once
  std::size_t next = 0;                  ///< slot of the next step
  std::int64_t runs = 0;                 ///< submissions so far
  std::int64_t update = 0;               ///< updates submitted; the schedule's step
  std::uint32_t micro = 0;               ///< micro-steps since the last update
  std::optional<double> fixed_lr;
  std::optional<BadStep> bad;
  bool last_bad = false;  ///< of the steps whose status was looked at, the last one
  /// What a bad last step saw in inputs that were written over since, for diagnose().
  std::map<const SessionInput*, std::vector<std::byte>> seen_by_bad;

 private:
  SessionOutput& output(std::string_view name);
  void retire(Slot& slot);
  void retire_all();  ///< every step has ended and its status is known
  std::vector<std::byte> read_parts(const TensorType& type, const Buffers& buffers);
  void write_direct(SessionInput& input, DType dtype, std::span<const std::byte> host);
  void write_hidden(Slot& slot);
  void append_uploads(const Slot& slot);
  [[noreturn]] void throw_bad_step();
};

/// A command of a segment; a barrier belongs between commands of different groups.
struct SegmentCommand {
  const PlanStep* step = nullptr;
  gpu::Command command;
  double ms = 0;  ///< an estimate
  std::uint32_t group = 0;
  std::vector<std::shared_ptr<void>> owners;
  std::optional<std::uint32_t> stamp = {};  ///< timestamps before and after it go to this slot and the next
};
/// In order, as record() puts them into lists; checks every launch against the device's limits.
std::vector<SegmentCommand> segment_commands(const Session::Impl& session, Segment segment);
/// Lists of these commands, each estimated below the session's bound.
std::vector<Chunk> record_commands(const Session::Impl& session, std::span<const SegmentCommand> commands,
                                   std::string_view name);

}  // namespace aeshna
