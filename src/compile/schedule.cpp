// schedule: order of the kernels, barrier groups and memory, decided together.
//
// A *cell* is one content of memory: a value of the graph, or a copy of one. Items (dispatches and copies) read and write cells,
// which gives the dependency graph: writers before readers (RAW), parts of one value in order (WAW). Where a new value is
// written over a parameter or state (`assign` in place), the readers of the old value come before the writers (WAR). Items
// without a path between them share a barrier group. Lifetimes are then counted in groups, and arenas laid out from them.
//
// Legal orders of the recorded segments: forward; forward, backward; forward, backward, update; any of these again. Each backward
// directly follows its own forward and each update its own backward, so a cell that crosses segments is live from its
// first writer to its last reader in the linear numbering of groups, and no more than that is needed. A leaf that is
// assigned in an early segment and whose old value is read in a later one is saved first.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>

#include "base/checked.h"
#include "base/fail.h"
#include "base/format.h"
#include "compile/memory_plan.h"
#include "compile/stages.h"
#include "ir/device_types.h"
#include "ir/leaf.h"
#include "ir/op.h"

namespace aeshna {

namespace {

constexpr std::uint64_t kWord = 4;
constexpr std::uint64_t kArenaAlignment = 256;  // whole cache lines, also where descriptors could begin anywhere
constexpr std::uint32_t kNone = UINT32_MAX;

/// One operand of an item.
struct Access {
  std::uint32_t cell = 0;
  std::uint64_t offset = 0, bytes = 0;
  bool written = false;
  std::uint32_t in_place_of = kNone;  ///< operand index
  bool overlaps(const Access& other) const {
    return offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

struct Item {
  PlanStep::Kind kind = PlanStep::Kind::Dispatch;
  Segment segment = Segment::Forward;
  const FusedKernel* fused = nullptr;
  const KernelSpec* spec = nullptr;
  std::vector<Access> accesses;
  std::vector<std::uint32_t> next, previous;  ///< dependency edges
  std::uint32_t group = 0;
  bool initial = false;  ///< Copy: the old contents of what a kernel updates
  bool dropped = false;  ///< an initial copy within one place: nothing to do
};

struct Use {
  std::uint32_t item = 0, operand = 0;
};

struct Cell {
  std::string name;
  TensorType type;
  std::uint64_t bytes = 0;
  std::vector<Use> readers, writers;
  std::vector<TensorPart> parts;     ///< the buffers it needs; placements and allocations are that many, one after another
  std::uint32_t placement = kNone;   ///< pinned cells; cells written over a leaf share the leaf's
  std::uint32_t allocation = kNone;  ///< arena cells: cells that take over memory in place share one
  bool has_heir = false;             ///< an update takes over its memory, and with it its contents
};

class Scheduler {
 public:
  explicit Scheduler(Compilation& c)
      : c_(c),
        graph_(*c.graph),
        plan_(c.plan),
        alignment_(align_up(kArenaAlignment, std::max(c.caps.storage_alignment, 1u))) {}

  void run() {
    add_kernels();
    add_leaf_outputs();
    save_assigned_sources();
    save_leaves_read_late();
    for (const NodeId id : graph_.assigns()) add_assign(graph_.node(id));
    place_outputs();
    make_updates_in_place();
    check_writers();
    for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update}) assign_groups(segment);
    plan_.barrier_groups = group_count_;
    lay_out_memory();
    emit_steps();
    report();
    plan_.graph = c_.graph;
  }

 private:
  Compilation& c_;
  const Graph& graph_;
  Plan& plan_;
  std::uint64_t alignment_;
  std::vector<Item> items_;
  std::vector<Cell> cells_;
  std::map<ValueId, std::uint32_t> cell_of_value_;
  std::map<std::uint32_t, std::uint32_t> saved_sources_;  ///< leaf cell -> copy of its old value
  std::uint32_t group_count_ = 0;
  std::vector<bool> seen_;                           ///< scratch of reaches()
  std::vector<std::uint32_t> workspace_allocation_;  ///< per item
  std::vector<LiveRange> allocations_;

  // ---- cells and items

  std::uint32_t new_cell(std::string name, const TensorType& type) {
    cells_.push_back({.name = std::move(name),
                      .type = type,
                      .bytes = device_bytes(type),
                      .readers = {},
                      .writers = {},
                      .parts = tensor_parts(type, c_.caps)});
    return static_cast<std::uint32_t>(cells_.size() - 1);
  }

  std::uint32_t cell_of(ValueId value) {
    if (const auto found = cell_of_value_.find(value); found != cell_of_value_.end()) return found->second;
    const Node& node = graph_.node(value.node);
    const std::uint32_t cell = new_cell(node.name.empty() ? node.op->name : node.name, graph_.type(value));
    cell_of_value_.emplace(value, cell);
    if (node.op->kind == OpKind::Leaf) cells_[cell].placement = place_leaf(node, cells_[cell]);
    return cell;
  }

  std::uint32_t pin(Home home, const Cell& cell, std::string name) {
    const auto first = static_cast<std::uint32_t>(plan_.placements.size());
    Placement placement;
    placement.home = home;
    placement.name = std::move(name);
    placement.type = cell.type;
    for (std::uint32_t part = 0; part < cell.parts.size(); ++part) {
      placement.part = part;
      placement.first_byte = cell.parts[part].offset;
      placement.bytes = cell.parts[part].bytes;
      plan_.placements.push_back(placement);
    }
    return first;
  }

  /// The part of a cell in which all of an access lies.
  std::uint32_t part_of(const Cell& cell, const Access& access) const {
    std::uint32_t part = 0;
    while (part + 1 < cell.parts.size() && access.offset >= cell.parts[part + 1].offset) ++part;
    if (access.offset + access.bytes > cell.parts[part].offset + cell.parts[part].bytes) {
      fail(ErrorCode::LimitExceeded, "'{}' of type {} needs {} bytes, of which max_buffer_size of {} allows {}; a kernel sees {} at once",
           cell.name, cell.type.to_string(), cell.bytes, c_.caps.device_name, c_.caps.max_buffer_size, access.bytes);
    }
    return part;
  }

  std::uint32_t place_leaf(const Node& node, const Cell& cell) {
    if (is_constant(node)) {
      const std::uint32_t index = pin(Home::Constant, cell, cell.name);
      for (std::size_t part = 0; part < cell.parts.size(); ++part)
        plan_.placements[index + part].constant = static_cast<std::uint32_t>(plan_.constants.size());
      plan_.constants.push_back(node.attrs.get<Literal>("value"));
      return index;
    }
    const Home home = is_input(node) ? Home::Input : is_parameter(node) ? Home::Parameter : Home::State;
    const std::uint32_t index = pin(home, cell, node.name);
    (home == Home::Input       ? plan_.inputs
     : home == Home::Parameter ? plan_.parameters
                               : plan_.states)
        .emplace(node.name, index);
    return index;
  }

  bool is_leaf(ValueId value) const { return graph_.node(value.node).op->kind == OpKind::Leaf; }
  const Access& access(const Use& use) const { return items_[use.item].accesses[use.operand]; }
  Segment segment_of(const Use& use) const { return items_[use.item].segment; }

  void add_edge(std::uint32_t from, std::uint32_t to) {
    if (from == to) return;
    if (items_[from].segment > items_[to].segment) {
      fail(ErrorCode::Internal, "schedule: {} belongs to an earlier segment than {}, which it needs", describe(to),
           describe(from));
    }
    items_[from].next.push_back(to);
    items_[to].previous.push_back(from);
  }

  void remove_last_edge(std::uint32_t from) {
    items_[items_[from].next.back()].previous.pop_back();
    items_[from].next.pop_back();
  }

  std::string describe(std::uint32_t index) const {
    const Item& item = items_[index];
    if (item.kind == PlanStep::Kind::Copy) return formatted("the copy of '{}'", cells_[item.accesses[0].cell].name);
    return formatted("the kernel that writes '{}'", [&] {
      for (const Access& a : item.accesses) {
        if (a.written) return cells_[a.cell].name;
      }
      return std::string("nothing");
    }());
  }

  /// Registers the operands of an item in its cells; writers must be added before readers.
  std::uint32_t add_item(Item item) {
    const auto index = static_cast<std::uint32_t>(items_.size());
    items_.push_back(std::move(item));
    for (std::uint32_t operand = 0; operand < items_[index].accesses.size(); ++operand) {
      const Access a = items_[index].accesses[operand];
      Cell& cell = cells_[a.cell];
      for (const Use& writer : cell.writers) {  // RAW, and WAW between parts of one value
        if (access(writer).overlaps(a)) add_edge(writer.item, index);
      }
      (a.written ? cell.writers : cell.readers).push_back({index, operand});
    }
    return index;
  }

  std::uint32_t add_copy(std::uint32_t source, std::uint32_t destination, Segment segment) {
    Item item;
    item.kind = PlanStep::Kind::Copy;
    item.segment = segment;
    item.accesses = {{.cell = source, .bytes = cells_[source].bytes},
                     {.cell = destination, .bytes = cells_[destination].bytes, .written = true}};
    return add_item(std::move(item));
  }

  void add_kernels() {
    for (const auto& [fused, spec] : c_.selected) {
      Item item;
      item.segment = fused.segment;
      item.fused = &fused;
      item.spec = &spec;
      for (const KernelOperand& operand : fused.operands) {
        Access a;
        a.cell = cell_of(operand.value);
        a.offset = device_bytes(operand.dtype, operand.first_element);
        a.bytes = device_bytes(operand.dtype, operand.elements);
        a.written = operand.written;
        a.in_place_of = operand.in_place_of.value_or(kNone);
        if (a.written && is_leaf(operand.value))
          fail(ErrorCode::Internal, "schedule: a kernel writes the leaf '{}'", cells_[a.cell].name);
        if (a.offset > cells_[a.cell].bytes || a.bytes > cells_[a.cell].bytes - a.offset) {
          fail(ErrorCode::Internal, "schedule: a kernel operand covers bytes {} to {} of '{}', which has {}", a.offset,
               a.offset + a.bytes, cells_[a.cell].name, cells_[a.cell].bytes);
        }
        part_of(cells_[a.cell], a);
        item.accesses.push_back(a);
      }
      if (fused.call.updated) {
        const std::uint32_t result = item.accesses[fused.call.result_operands[0]].cell;
        items_[add_copy(cell_of(*fused.call.updated), result, fused.segment)].initial = true;
      }
      add_item(std::move(item));
    }
  }

  // ---- outputs and assigns

  /// An output that is a leaf is copied, from the value at the start of the step.
  void add_leaf_outputs() {
    std::map<ValueId, std::uint32_t> placed;
    for (const Graph::Output& output : graph_.outputs()) {
      if (!is_leaf(output.value)) continue;
      const auto [entry, fresh] = placed.try_emplace(output.value, 0);
      if (fresh) entry->second = copy_to_output(cell_of(output.value), output.name, Segment::Forward);
      plan_.outputs.emplace(output.name, entry->second);
    }
  }

  std::uint32_t copy_to_output(std::uint32_t source, const std::string& name, Segment segment) {
    const std::uint32_t cell = new_cell(name, cells_[source].type);
    cells_[cell].placement = pin(Home::Output, cells_[cell], name);
    add_copy(source, cell, segment);
    return cells_[cell].placement;
  }

  /// A leaf that is assigned to another and is assigned itself (two states that swap) is copied at the start of the step.
  void save_assigned_sources() {
    for (const NodeId id : graph_.assigns()) {
      const ValueId source = graph_.node(id).inputs[1];
      if (!is_leaf(source) || source == graph_.node(id).inputs[0] || !is_assigned(source)) continue;
      const std::uint32_t leaf = cell_of(source);
      if (saved_sources_.contains(leaf)) continue;
      const std::uint32_t old = new_cell(cells_[leaf].name + " (old)", cells_[leaf].type);
      add_copy(leaf, old, Segment::Forward);
      saved_sources_.emplace(leaf, old);
    }
  }

  /// Readers of a leaf in segments after the one that assigns it read a copy taken before.
  void save_leaves_read_late() {
    for (const NodeId id : graph_.assigns()) {
      const Node& assign = graph_.node(id);
      if (assign.inputs[1] == assign.inputs[0]) continue;
      const std::uint32_t leaf = cell_of(assign.inputs[0]);
      const auto late = [&](const Use& use) { return segment_of(use) > assign.segment; };
      if (std::ranges::none_of(cells_[leaf].readers, late)) continue;
      const std::uint32_t saved = new_cell(cells_[leaf].name + " (old)", cells_[leaf].type);
      const std::uint32_t copy = add_copy(leaf, saved, assign.segment);
      auto& readers = cells_[leaf].readers;
      for (const Use& use : readers) {
        if (!late(use)) continue;
        items_[use.item].accesses[use.operand].cell = saved;
        cells_[saved].readers.push_back(use);
        add_edge(copy, use.item);
      }
      std::erase_if(readers, late);
      plan_.notes.push_back(
          formatted("'{}' is assigned in an earlier segment than its last reader's: its old value is kept in a copy",
                    cells_[leaf].name));
    }
  }

  void add_assign(const Node& assign) {
    const std::uint32_t leaf = cell_of(assign.inputs[0]);
    if (assign.inputs[1] == assign.inputs[0]) return;  // keeps its value
    std::uint32_t value = cell_of(assign.inputs[1]);
    const std::string obstacle = try_in_place(assign, leaf, value);
    if (obstacle.empty()) return;
    plan_.notes.push_back(formatted("'{}' is updated by a copy, not in place: {}", cells_[leaf].name, obstacle));
    if (const auto saved = saved_sources_.find(value); saved != saved_sources_.end()) value = saved->second;
    const std::uint32_t renewed = new_cell(cells_[leaf].name, cells_[leaf].type);
    cells_[renewed].placement = cells_[leaf].placement;
    const std::uint32_t copy = add_copy(value, renewed, assign.segment);
    for (const Use& reader : std::vector(cells_[leaf].readers)) {
      if (segment_of(reader) == assign.segment && access(reader).overlaps(items_[copy].accesses[1]))
        add_edge(reader.item, copy);
    }
  }

  bool is_assigned(ValueId leaf) const {
    return std::ranges::any_of(graph_.assigns(), [&](NodeId id) {
      return graph_.node(id).inputs[0] == leaf && graph_.node(id).inputs[1] != leaf;
    });
  }

  /// Lets the kernels that compute `value` write it over `leaf`; else says why not, and changes nothing.
  std::string try_in_place(const Node& assign, std::uint32_t leaf, std::uint32_t value) {
    if (is_leaf(assign.inputs[1])) return "the new value is a leaf";
    if (cells_[value].placement != kNone)
      return formatted("the new value is already written over '{}'", plan_.placements[cells_[value].placement].name);
    for (const Use& writer : cells_[value].writers) {
      if (segment_of(writer) != assign.segment) return "the new value is computed in an earlier segment";
      if (items_[writer.item].initial) continue;
      for (const Use& reader : cells_[leaf].readers) {
        if (reader.item != writer.item) continue;
        if (access(writer).in_place_of != reader.operand)
          return "the kernel reads the old value at other places than it writes";
        if (!elementwise(items_[writer.item], writer.operand))
          return "several invocations may read an element that one writes";
        if (access(writer).offset != access(reader).offset || access(writer).bytes != access(reader).bytes)
          return "the kernel's windows differ";
      }
    }
    std::vector<std::uint32_t> added;  // sources of new edges, in order
    const auto give_up = [&](std::uint32_t reader) {
      for (auto from = added.rbegin(); from != added.rend(); ++from) remove_last_edge(*from);
      return formatted("{} needs the new value and the old one", describe(reader));
    };
    for (const Use& writer : cells_[value].writers) {
      for (const Use& reader : cells_[leaf].readers) {
        if (reader.item == writer.item || segment_of(reader) != segment_of(writer) ||
            !access(reader).overlaps(access(writer)))
          continue;
        if (reaches(writer.item, reader.item)) return give_up(reader.item);
        add_edge(reader.item, writer.item);
        added.push_back(reader.item);
      }
    }
    cells_[value].placement = cells_[leaf].placement;
    for (const Use& writer : std::vector(cells_[value].writers)) {
      if (items_[writer.item].initial && items_[writer.item].accesses[0].cell == leaf) drop(writer.item);
    }
    return {};
  }

  void drop(std::uint32_t index) {
    Item& item = items_[index];
    item.dropped = true;
    for (const std::uint32_t next : item.next) std::erase(items_[next].previous, index);
    for (const std::uint32_t previous : item.previous) std::erase(items_[previous].next, index);
    item.next.clear();
    item.previous.clear();
    const auto of_item = [&](const Use& use) { return use.item == index; };
    for (const Access& a : item.accesses) {
      std::erase_if(cells_[a.cell].readers, of_item);
      std::erase_if(cells_[a.cell].writers, of_item);
    }
  }

  /// Is each element of written operand `operand` written by one invocation, once? Only then may that invocation have read the
  /// old element through a tied operand. Reductions may read a row from several invocations.
  static bool elementwise(const Item& item, std::uint32_t operand) {
    if (item.fused == nullptr || item.fused->kind == FusedKernel::Kind::Reduction) return false;
    int stores = 0;
    for (const Store& store : item.fused->body.stores) {
      if (store.operand != operand) continue;
      if (++stores > 1) return false;
      for (std::size_t d = 0; d < item.fused->space.size(); ++d) {
        const std::int64_t stride = d < store.access.strides.size() ? store.access.strides[d] : 0;
        if (stride == 0 && item.fused->space[d] > 1) return false;
      }
    }
    return true;
  }

  bool reaches(std::uint32_t from, std::uint32_t to) {
    seen_.assign(items_.size(), false);
    std::vector<std::uint32_t> stack = {from};
    while (!stack.empty()) {
      const std::uint32_t at = stack.back();
      stack.pop_back();
      if (at == to) return true;
      if (seen_[at]) continue;
      seen_[at] = true;
      for (const std::uint32_t next : items_[at].next) {
        if (items_[next].segment == items_[to].segment) stack.push_back(next);
      }
    }
    return false;
  }

  /// Computed outputs: the value's own placement, or a copy where it was written over a leaf.
  void place_outputs() {
    std::map<ValueId, std::uint32_t> placed;
    for (const Graph::Output& output : graph_.outputs()) {
      if (is_leaf(output.value)) continue;
      const auto [entry, fresh] = placed.try_emplace(output.value, 0);
      if (fresh) {
        const std::uint32_t cell = cell_of(output.value);
        if (cells_[cell].placement == kNone) {
          entry->second = cells_[cell].placement = pin(Home::Output, cells_[cell], output.name);
        } else {
          Segment segment = Segment::Forward;
          for (const Use& writer : cells_[cell].writers) segment = std::max(segment, segment_of(writer));
          entry->second = copy_to_output(cell, output.name, segment);
        }
      }
      plan_.outputs.emplace(output.name, entry->second);
    }
  }

  /// What an update starts from is computed where its result is pinned, if nothing else reads it.
  void make_updates_in_place() {
    for (std::uint32_t i = static_cast<std::uint32_t>(items_.size()); i-- > 0;) {  // an update of an update: the later one first
      const Item& item = items_[i];
      if (!item.initial || item.dropped) continue;
      Cell &from = cells_[item.accesses[0].cell], &to = cells_[item.accesses[1].cell];
      const bool alone = std::ranges::all_of(from.readers, [&](const Use& use) { return use.item == i; });
      const bool early = std::ranges::all_of(from.writers, [&](const Use& use) { return segment_of(use) == item.segment; });
      if (from.placement != kNone || to.placement == kNone || from.writers.empty() || from.bytes != to.bytes || !alone || !early) continue;
      const Home home = plan_.placements[to.placement].home;
      if (home != Home::Output) continue;
      from.placement = to.placement;
      for (const Use& writer : from.writers) {  // the kernel comes behind what it starts from
        for (const Use& reader : to.writers) {
          if (reader.item != i) add_edge(writer.item, reader.item);
        }
      }
      drop(i);
    }
  }

  void check_writers() const {
    for (const auto& [value, cell] : cell_of_value_) {
      if (is_leaf(value) || !cells_[cell].writers.empty()) continue;
      fail(ErrorCode::Internal, "schedule: no kernel writes '{}' (node %{}, {})", cells_[cell].name, value.node,
           graph_.node(value.node).line.to_string());
    }
  }

  // ---- barrier groups

  void assign_groups(Segment segment) {
    std::vector<std::uint32_t> order;  // topological
    std::vector<std::uint32_t> waiting(items_.size(), 0);
    std::vector<std::uint32_t> members;
    for (std::uint32_t i = 0; i < items_.size(); ++i) {
      if (items_[i].segment != segment || items_[i].dropped) continue;
      members.push_back(i);
      for (const std::uint32_t p : items_[i].previous) waiting[i] += items_[p].segment == segment ? 1 : 0;
      if (waiting[i] == 0) order.push_back(i);
    }
    if (members.empty()) return;
    const std::uint32_t base = group_count_;
    std::uint32_t levels = 1;
    for (const std::uint32_t i : members) items_[i].group = base;
    for (std::size_t at = 0; at < order.size(); ++at) {  // as soon as possible
      const std::uint32_t i = order[at];
      levels = std::max(levels, items_[i].group - base + 1);
      for (const std::uint32_t next : items_[i].next) {
        if (items_[next].segment != segment) continue;
        items_[next].group = std::max(items_[next].group, items_[i].group + 1);
        if (--waiting[next] == 0) order.push_back(next);
      }
    }
    if (order.size() != members.size())
      fail(ErrorCode::Internal, "schedule: the kernels depend on each other in a circle");
    group_count_ = base + levels;

    // An item that takes more memory than it frees waits until just before its first reader.
    for (const std::uint32_t i : order | std::views::reverse) {
      std::uint32_t latest = kNone;
      for (const std::uint32_t next : items_[i].next) {
        if (items_[next].segment == segment) latest = std::min(latest, items_[next].group - 1);
      }
      if (latest != kNone && latest > items_[i].group && memory_growth(items_[i]) > 0) items_[i].group = latest;
    }
  }

  /// Arena bytes that an item takes, less those that no other item reads after it.
  std::int64_t memory_growth(const Item& item) const {
    std::int64_t growth = 0;
    for (const Access& a : item.accesses) {
      const Cell& cell = cells_[a.cell];
      if (cell.placement != kNone) continue;
      if (a.written)
        growth += static_cast<std::int64_t>(a.bytes);
      else if (cell.readers.size() == 1)
        growth -= static_cast<std::int64_t>(a.bytes);
    }
    return growth;
  }

  // ---- memory

  void lay_out_memory() {
    std::vector<std::uint32_t> by_group(items_.size());
    std::iota(by_group.begin(), by_group.end(), 0u);
    std::ranges::stable_sort(by_group, {}, [&](std::uint32_t i) { return items_[i].group; });
    workspace_allocation_.assign(items_.size(), kNone);
    std::vector<std::uint64_t> workspace_of_group(group_count_, 0);

    for (const std::uint32_t i : by_group) {
      const Item& item = items_[i];
      if (item.dropped || update_within(i)) continue;
      for (const Access& a : item.accesses) {
        Cell& cell = cells_[a.cell];
        if (!a.written || cell.placement != kNone || cell.allocation != kNone) continue;
        const LiveRange range = lifetime(cell);
        const std::uint32_t taken = takes_over(item, a);
        if (taken != kNone) {
          cell.allocation = cells_[taken].allocation;
          allocations_[cell.allocation].last = std::max(allocations_[cell.allocation].last, range.last);
        } else {
          // An empty tensor has a place too, so that every placement lies in some arena.
          cell.allocation = static_cast<std::uint32_t>(allocations_.size());
          for (const TensorPart& part : cell.parts) allocate({std::max(part.bytes, kWord), range.first, range.last}, cell.name);
        }
        plan_.memory.logical_bytes += align_up(cell.bytes, alignment_);
      }
      if (item.spec != nullptr && item.spec->workspace_bytes > 0) {
        workspace_allocation_[i] =
            allocate({item.spec->workspace_bytes, item.group, item.group}, "workspace of " + item.spec->family);
        workspace_of_group[item.group] += align_up(item.spec->workspace_bytes, alignment_);
      }
    }
    if (!workspace_of_group.empty()) plan_.memory.workspace_bytes = std::ranges::max(workspace_of_group);

    const ArenaLayout layout = plan_arenas(allocations_, alignment_, c_.caps.max_buffer_size, c_.options.aliasing);
    plan_.arenas = layout.arenas;
    plan_.memory.arena_bytes = layout.total();
    for (Cell& cell : cells_) {
      if (cell.placement == kNone && cell.allocation != kNone) {
        cell.placement = static_cast<std::uint32_t>(plan_.placements.size());
        LiveRange range = lifetime(cell);
        for (std::uint32_t part = 0; part < cell.parts.size(); ++part) {
          range.bytes = cell.parts[part].bytes;
          Placement& placed =
              plan_.placements[place_in_arena(Home::Arena, cell.name, cell.type, range, layout.slots[cell.allocation + part])];
          placed.part = part;
          placed.first_byte = cell.parts[part].offset;
        }
      }
    }
    for (const std::uint32_t i : by_group) {
      if (workspace_allocation_[i] == kNone) continue;
      const std::uint32_t allocation = workspace_allocation_[i];
      const auto words = static_cast<std::int64_t>(ceil_div(allocations_[allocation].bytes, kWord));
      workspace_allocation_[i] = place_in_arena(Home::Workspace, "workspace", {DType::u32, {words}},
                                                allocations_[allocation], layout.slots[allocation]);
    }
  }

  /// The initial copy `index` of an update moves nothing if the new value may take over the old one's memory, of which nobody else
  /// reads later.
  bool update_within(std::uint32_t index) {
    const Item& item = items_[index];
    if (!item.initial) return false;
    Cell &from = cells_[item.accesses[0].cell], &to = cells_[item.accesses[1].cell];
    const bool read_later = std::ranges::any_of(
        from.readers, [&](const Use& use) { return use.item != index && items_[use.item].group > item.group; });
    // Of one segment only: a repeated backward pass must not find what it has updated before.
    const bool elsewhere = std::ranges::any_of(from.writers, [&](const Use& use) { return segment_of(use) != item.segment; });
    if (elsewhere && !c_.options.aliasing) return false;
    if (from.placement != kNone || from.allocation == kNone || from.has_heir || to.placement != kNone || to.allocation != kNone ||
        from.bytes != to.bytes || read_later) {
      return false;
    }
    const LiveRange range = lifetime(to);
    to.allocation = from.allocation;
    from.has_heir = true;
    allocations_[to.allocation].last = std::max(allocations_[to.allocation].last, range.last);
    plan_.memory.logical_bytes += align_up(to.bytes, alignment_);
    drop(index);
    return true;
  }

  std::uint32_t allocate(LiveRange range, std::string_view name) {
    if (range.bytes > c_.caps.max_buffer_size) {
      fail(ErrorCode::LimitExceeded, "'{}' needs {} bytes of one buffer; max_buffer_size of {} is {}", name,
           range.bytes, c_.caps.device_name, c_.caps.max_buffer_size);
    }
    allocations_.push_back(range);
    return static_cast<std::uint32_t>(allocations_.size() - 1);
  }

  LiveRange lifetime(const Cell& cell) const {
    LiveRange range{cell.bytes, UINT32_MAX, 0};
    for (const auto* uses : {&cell.writers, &cell.readers}) {
      for (const Use& use : *uses) {
        range.first = std::min(range.first, items_[use.item].group);
        range.last = std::max(range.last, items_[use.item].group);
      }
    }
    return range;
  }

  /// The cell that dies in `item` and over whose memory operand `written` may be written; kNone if there is none.
  std::uint32_t takes_over(const Item& item, const Access& written) const {
    if (!c_.options.aliasing || written.in_place_of == kNone) return kNone;
    if (!elementwise(item, static_cast<std::uint32_t>(&written - item.accesses.data()))) return kNone;
    const Access& read = item.accesses[written.in_place_of];
    const Cell& from = cells_[read.cell];
    const Cell& to = cells_[written.cell];
    // Of one segment only: a repeated backward pass must not find what it has updated before.
    const bool elsewhere = std::ranges::any_of(from.writers, [&](const Use& use) { return segment_of(use) != item.segment; });
    if (elsewhere && !c_.options.aliasing) return false;
    if (from.placement != kNone || from.allocation == kNone || from.has_heir || from.bytes != to.bytes || to.writers.size() != 1)
      return kNone;
    if (read.bytes != from.bytes || written.bytes != to.bytes) return kNone;  // row windows
    for (const Access& other : item.accesses) {                               // one heir only
      if (&other != &written && other.written && other.in_place_of == written.in_place_of) return kNone;
    }
    for (const Use& use : from.readers) {
      const Item& other = items_[use.item];
      if (other.group > item.group || (other.group == item.group && &other != &item)) return kNone;
    }
    return read.cell;
  }

  std::uint32_t place_in_arena(Home home, std::string name, TensorType type, const LiveRange& range,
                               const ArenaSlot& slot) {
    Placement placement;
    placement.home = home;
    placement.name = std::move(name);
    placement.type = std::move(type);
    placement.arena = slot.arena;
    placement.offset = slot.offset;
    placement.bytes = range.bytes;
    placement.first_group = range.first;
    placement.last_group = range.last;
    plan_.placements.push_back(std::move(placement));
    return static_cast<std::uint32_t>(plan_.placements.size() - 1);
  }

  // ---- steps

  void emit_steps() {
    std::vector<std::uint32_t> order(items_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return items_[i].group; });
    const std::uint32_t counters = place_counters(order);
    std::uint64_t next_counter = 0;
    for (const std::uint32_t i : order) {
      const Item& item = items_[i];
      if (item.dropped) continue;
      PlanStep step;
      step.kind = item.kind;
      step.segment = item.segment;
      step.group = item.group;
      if (item.kind == PlanStep::Kind::Copy) {  // a step for each part: both are cut alike
        for (std::uint32_t part = 0; part < cells_[item.accesses[0].cell].parts.size(); ++part) {
          for (const Access& a : item.accesses) {
            const Cell& cell = cells_[a.cell];
            step.operands.push_back(bound(a, part, 0, cell.parts.at(part).bytes));
          }
          plan_.steps.push_back(step);
          step.operands.clear();
        }
        continue;
      }
      for (const Access& a : item.accesses) {
        const std::uint32_t part = part_of(cells_[a.cell], a);
        step.operands.push_back(bound(a, part, a.offset - cells_[a.cell].parts[part].offset, a.bytes));
      }
      if (item.spec != nullptr) {
        step.spec = *item.spec;
        if (item.spec->workspace_bytes > 0) {
          step.operands.push_back({.placement = workspace_allocation_[i],
                                   .bytes = item.spec->workspace_bytes,
                                   .read = true,
                                   .written = true});
        }
        if (item.spec->counters > 0) {
          const std::uint64_t bytes = item.spec->counters * kWord;
          step.operands.push_back(
              {.placement = counters, .offset = next_counter, .bytes = bytes, .read = true, .written = true});
          next_counter += align_up(bytes, alignment_);
        }
      }
      plan_.steps.push_back(std::move(step));
    }
  }

  PlanOperand bound(const Access& access, std::uint32_t part, std::uint64_t offset, std::uint64_t bytes) const {
    return {.placement = cells_[access.cell].placement + part,
            .offset = offset,
            .bytes = bytes,
            .read = !access.written,
            .written = access.written};
  }

  /// One placement for the counters of all dispatches; each dispatch has a range of its own.
  std::uint32_t place_counters(std::span<const std::uint32_t> order) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t i : order) {
      if (items_[i].spec != nullptr) bytes += align_up(items_[i].spec->counters * kWord, alignment_);
    }
    if (bytes == 0) return kNone;
    plan_.counters = bytes / kWord;
    Placement placement;
    placement.home = Home::Counters;
    placement.name = "counters";
    placement.type = {DType::u32, {static_cast<std::int64_t>(plan_.counters)}};
    placement.bytes = bytes;
    plan_.placements.push_back(std::move(placement));
    return static_cast<std::uint32_t>(plan_.placements.size() - 1);
  }

  void report() {
    for (const Placement& placement : plan_.placements) {
      const bool transient =
          placement.home == Home::Arena || placement.home == Home::Workspace || placement.home == Home::Counters;
      if (!transient) plan_.memory.pinned_bytes += placement.bytes;
    }
  }
};

}  // namespace

void schedule(Compilation& compilation) { Scheduler(compilation).run(); }

}  // namespace aeshna
