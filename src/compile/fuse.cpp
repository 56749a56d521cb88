// fuse: partitions the nodes of an expanded graph into kernels.
//
// Every compute node starts as a cluster of its own. In topological order a node joins the clusters of its producers (a product
// or a reduction takes its consumers as epilogue, a reduction its producers as prologue), then a product takes cheap producers
// into its loaders, and last, kernels over one space that read the same tensor join. A merge is legal when it makes no cycle
// between clusters and when build_kernel can express the merged cluster; nothing else decides, so that what is fused is by
// construction what the code generator can print.
#include <algorithm>
#include <numeric>
#include <queue>
#include <set>

#include "base/fail.h"
#include "compile/kernel_builder.h"
#include "compile/plan.h"
#include "compile/stages.h"
#include "ops/matmul_variants.h"

namespace aeshna {
namespace {

constexpr int kCheap = 4;           // sum of PointwiseDef::cost up to which a value is recomputed rather than stored
constexpr std::int64_t kSmallPart = 8;  // of the elements of a result: a tensor below this share is small beside it
constexpr std::int64_t kWindow = 64;   // elements of a window up to which reductions over it count as readers of the whole tensor
constexpr int kFewCost = 16;           // the same for the few rows of a narrow product
constexpr std::int64_t kFewTimes =
    1 << 21;                        // in which they may be computed: elements of the rows for each of the long side
constexpr int kTranscendental = 8;  // not recomputed across a broadcast
// A reduction over few rows runs in few workgroups (or is split, if it stores one value per row only): up to this many
// elements it may also store values of the full space.
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kFewElements = 2048;

class Fuser {
 public:
  Fuser(const Graph& graph, const Caps& caps, bool fusion) : graph_(graph), caps_(caps), fusion_(fusion), state_(graph, caps) {}

  std::vector<FusedKernel> run() {
    forced_.assign(graph_.nodes().size(), false);
    while (!initial_clusters()) {
    }
    if (fusion_) {
      reach_.resize(graph_.nodes().size());
      std::iota(reach_.begin(), reach_.end(), 0);
      join_producers();
      join_siblings();
    }
    return emit();
  }

 private:
  const Graph& graph_;
  const Caps& caps_;
  bool fusion_;
  FusionState state_;
  std::vector<bool> forced_;  // movement nodes that must be in memory
  std::vector<NodeId>
      reach_;  // of each node: the last one of all clusters that begin before it, or itself if they end before it
  std::vector<bool> seen_;  // of path_around

  bool is_compute(const Node& n) const {
    return n.op->kind == OpKind::Pointwise || n.op->kind == OpKind::Reduce || n.op->kind == OpKind::Product ||
           n.op->kind == OpKind::Random || n.op->kind == OpKind::Gather;
  }

  /// One cluster per node that is stored; false when a movement node had to be forced into memory (start again).
  bool initial_clusters() {
    const std::size_t count = graph_.nodes().size();
    state_.cluster_of.assign(count, FusionState::kNone);
    state_.clusters.clear();
    state_.transparent.assign(count, false);
    state_.external.assign(count, false);
    state_.storage.resize(count);
    state_.assigned_to.resize(count);
    state_.users.assign(count, {});
    for (NodeId n = 0; n < count; ++n) {
      state_.storage[n] = {n, 0};
      state_.assigned_to[n] = n;
      for (const ValueId input : graph_.node(n).inputs) {
        auto& users = state_.users[input.node];
        if (users.empty() || users.back() != n) users.push_back(n);
      }
    }
    mark_external();
    for (NodeId n = static_cast<NodeId>(count); n-- > 0;) {  // users first
      const OpKind kind = graph_.node(n).op->kind;
      if (kind == OpKind::Leaf || kind == OpKind::Sink) continue;
      const bool movable = kind == OpKind::Movement || kind == OpKind::Index;
      const bool stored =
          state_.external[n] || forced_[n] || kind == OpKind::Kernel ||
          (movable ? !fusion_
                   : !(fusion_ && (recomputable(n) || is_part_of_recomputed(n) || only_gathered(n) || late_scale(n))));
      state_.transparent[n] = !stored;
    }
    state_.find_readers();
    for (NodeId n = 0; n < count; ++n) {
      const Node& node = graph_.node(n);
      const OpKind kind = node.op->kind;
      if (kind == OpKind::Leaf || kind == OpKind::Sink || state_.transparent[n]) continue;
      if (kind == OpKind::Composite) fail(ErrorCode::Internal, "fuse: composite {} was not expanded", node.op->name);
      state_.cluster_of[n] = static_cast<int>(state_.clusters.size());
      state_.clusters.push_back({n});
    }
    for (std::size_t id = 0; id < state_.clusters.size(); ++id) {
      const NodeId n = state_.clusters[id][0];
      if (!state_.escapes(n)) continue;  // dead: nothing reads it
      BuildFailure failure;
      if (build_kernel(state_, static_cast<int>(id), failure)) continue;
      if (!failure.materialise || forced_[*failure.materialise]) {
        const Node& node = graph_.node(n);
        fail(ErrorCode::LimitExceeded, "[{}] {} at {} cannot be one kernel on {}: {}", node.op->name, node.results[0].to_string(),
             node.line.to_string(), caps_.device_name, failure.why);
      }
      forced_[*failure.materialise] = true;
      return false;
    }
    return true;
  }

  /// Values seen from outside, and which value's placement holds each. A reshape of a stored value that nobody else sees from
  /// outside shares its memory; any other movement node seen from outside gets a kernel of its own.
  void mark_external() {
    struct Seen {
      ValueId value;
      std::optional<NodeId> leaf;  // it is assigned to
    };
    std::vector<Seen> seen;
    for (const NodeId id : graph_.assigns()) seen.push_back({graph_.node(id).inputs[1], graph_.node(id).inputs[0].node});
    for (const auto& output : graph_.outputs()) seen.push_back({output.value, std::nullopt});
    const auto root_of = [&](NodeId node) {
      while (graph_.node(node).op->movement == MovementKind::Reshape && !forced_[node]) node = graph_.node(node).inputs[0].node;
      return node;
    };
    for (const bool reshapes : {false, true}) {  // a value seen as it is keeps its own memory
      for (const auto& [value, leaf] : seen) {
        if (graph_.node(value.node).op->kind == OpKind::Leaf) continue;  // the planner copies it
        const NodeId root = root_of(value.node);
        if ((root != value.node) != reshapes || state_.external[value.node]) continue;
        if (leaf) state_.assigned_to[value.node] = *leaf;
        const bool shares = reshapes && fusion_ && (is_compute(graph_.node(root)) || holds_first_result(value, root)) && !state_.external[root];
        if (shares) {
          state_.storage[root] = value;
          state_.external[root] = true;
        } else if (!reshapes || state_.storage[root] != value) {
          state_.external[value.node] = true;
        }
      }
    }
  }

  /// Is `value` a reshape of result 0 of the kernel op `root`?
  bool holds_first_result(ValueId value, NodeId root) const {
    if (graph_.node(root).op->kind != OpKind::Kernel) return false;
    while (value.node != root) value = graph_.node(value.node).inputs[0];
    return value.result == 0;
  }

  /// A gather that is only gathered from, along other axes: those become loads with two indices.
  bool only_gathered(NodeId n) const {
    return graph_.node(n).op->kind == OpKind::Gather && !state_.users[n].empty() && std::ranges::all_of(state_.users[n], [&](NodeId user) {
      const Node& node = graph_.node(user);
      return node.op->kind == OpKind::Gather && node.inputs[0].node == n && node.inputs[1].node != n;
    });
  }

  /// A cheap function of at most one large tensor that is in memory anyway: computed where it is used. Small ones (a mean per
  /// row) cost next to nothing to read again.
  bool recomputable(NodeId n) const {
    int cost = 0;
    std::vector<NodeId> tensors;
    return cheap_tree(n, n, cost, tensors, 0) && cost <= kCheap && tensors.size() <= 1 && state_.users[n].size() > 1;
  }
  /// The product that `n` multiplies by a small value that it does not need itself (late_scales.cpp), each row by one number. In the
  /// product's epilogue it would make the product wait.
  std::optional<NodeId> late_scaled_product(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.op->name != "mul") return std::nullopt;
    for (const std::size_t i : {0u, 1u}) {
      const NodeId product = node.inputs[i].node;
      const Shape &full = node.results[0].shape, &scale = graph_.type(node.inputs[1 - i]).shape;
      if (full.rank() != 2 || scale != full.with(1, 1) || full[1] < kSmallPart || long_side(product) == 0 ||
          state_.users[product].size() != 1)
        continue;
      if (const auto statistic = nearest_reduction(node.inputs[1 - i].node))
        return needs(product, *statistic) ? std::nullopt : std::optional(product);
    }
    return std::nullopt;
  }
  /// A reduction that `n` comes from by pointwise ops and reshapes.
  std::optional<NodeId> nearest_reduction(NodeId n) const {
    std::vector<NodeId> stack = {n};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      const Node& node = graph_.node(stack.back());
      const bool fresh = seen.insert(stack.back()).second;
      if (node.op->kind == OpKind::Reduce) return stack.back();
      stack.pop_back();
      if (!fresh || (node.op->kind != OpKind::Pointwise && node.op->movement != MovementKind::Reshape)) continue;
      for (const ValueId input : node.inputs) stack.push_back(input.node);
    }
    return std::nullopt;
  }
  bool needs(NodeId n, NodeId source) const {
    std::vector<NodeId> stack = {n};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      const NodeId next = stack.back();
      stack.pop_back();
      if (next == source) return true;
      if (next < source || !seen.insert(next).second) continue;  // nodes are in topological order
      for (const ValueId input : graph_.node(next).inputs) stack.push_back(input.node);
    }
    return false;
  }
  /// Such a scale is applied by whoever reads it, unless that is a kernel of its own, which reads memory.
  bool late_scale(NodeId n) const {
    if (!late_scaled_product(n)) return false;
    std::vector<NodeId> readers = state_.users[n];
    while (!readers.empty()) {
      const Node& reader = graph_.node(readers.back());
      const NodeId id = readers.back();
      readers.pop_back();
      if (reader.op->kind == OpKind::Kernel || reader.op->kind == OpKind::Product) return false;
      if (reader.op->kind == OpKind::Movement)
        readers.insert(readers.end(), state_.users[id].begin(), state_.users[id].end());
    }
    return true;
  }
  /// Needed by recomputed values alone: x - mean below (x - mean) * deviation.
  bool is_part_of_recomputed(NodeId n) const {
    const auto recomputed = [&](NodeId user) {
      return state_.transparent[user] && graph_.node(user).op->kind == OpKind::Pointwise;
    };
    return graph_.node(n).op->kind == OpKind::Pointwise && !state_.users[n].empty() &&
           std::ranges::all_of(state_.users[n], recomputed);
  }
  bool cheap_tree(NodeId root, NodeId n, int& cost, std::vector<NodeId>& tensors, int depth) const {
    const Node& node = graph_.node(n);
    if (state_.is_literal(n) || node.op->kind == OpKind::Index) return true;
    const bool anchor = node.op->kind == OpKind::Product || node.op->kind == OpKind::Reduce;
    // What another segment computes reaches this one through memory.
    const bool stored = node.op->kind == OpKind::Leaf || state_.external[n] || (anchor && state_.users[n].size() > 1) ||
                        node.segment != graph_.node(root).segment;
    if (depth > 0 && stored) {
      const bool large = node.results[0].shape.elements() > graph_.node(root).results[0].shape.elements() / kSmallPart;
      if (node.results[0].shape.elements() > 1 && large && std::ranges::find(tensors, n) == tensors.end()) tensors.push_back(n);
      return true;
    }
    if (node.op->kind != OpKind::Pointwise || depth > 4) return false;
    cost += node.op->pointwise.cost;
    if (cost > kCheap) return false;
    return std::ranges::all_of(node.inputs, [&](ValueId v) { return cheap_tree(root, v.node, cost, tensors, depth + 1); });
  }

  // ---- clusters

  /// Clusters whose values the nodes of `id` read, looking through transparent nodes.
  std::vector<int> producers(int id) const {
    std::vector<int> found;
    std::vector<NodeId> stack(state_.clusters[static_cast<std::size_t>(id)]);
    std::vector<NodeId> seen;
    for (std::size_t i = 0; i < stack.size(); ++i) {
      for (const ValueId input : graph_.node(stack[i]).inputs) {
        const NodeId n = input.node;
        const int c = state_.cluster_of[n];
        if (state_.transparent[n]) {
          if (std::ranges::find(seen, n) == seen.end()) {
            seen.push_back(n);
            stack.push_back(n);
          }
        } else if (c != FusionState::kNone && c != id && std::ranges::find(found, c) == found.end()) {
          found.push_back(c);
        }
      }
    }
    return found;
  }

  std::vector<int> consumers(int id) const {
    std::vector<int> found;
    for (const NodeId n : state_.clusters[static_cast<std::size_t>(id)]) {
      for (const NodeId user : state_.readers[n]) {
        const int c = state_.cluster_of[user];
        if (c != FusionState::kNone && c != id && std::ranges::find(found, c) == found.end()) found.push_back(c);
      }
    }
    return found;
  }

  /// A path from `from` to `to` that leaves both: merging them would make a cycle.
  bool path_around(int from, int to) {
    // Nodes are in topological order: what begins behind the end of `to`, and of every cluster that begins before that end and so
    // may lead there, does not lead there. (A path of clusters may go back in the order: each holds nodes from far apart.)
    NodeId last = state_.clusters[static_cast<std::size_t>(to)].back();
    while (reach_[last] > last) last = reach_[last];
    seen_.assign(state_.clusters.size(), false);
    seen_[static_cast<std::size_t>(from)] = true;
    std::vector<int> stack{from};
    while (!stack.empty()) {
      const int c = stack.back();
      stack.pop_back();
      for (const NodeId n : state_.clusters[static_cast<std::size_t>(c)]) {
        for (const NodeId user : state_.readers[n]) {
          const int next = state_.cluster_of[user];
          if (next == FusionState::kNone || seen_[static_cast<std::size_t>(next)]) continue;
          if (next == to) {
            if (c != from) return true;
            continue;
          }
          seen_[static_cast<std::size_t>(next)] = true;
          if (state_.clusters[static_cast<std::size_t>(next)].front() < last) stack.push_back(next);
        }
      }
    }
    return false;
  }

  const Node& first_node(int id) const { return graph_.node(state_.clusters[static_cast<std::size_t>(id)][0]); }
  bool has_kind(int id, OpKind kind) const {
    return std::ranges::any_of(state_.clusters[static_cast<std::size_t>(id)],
                               [&](NodeId n) { return graph_.node(n).op->kind == kind; });
  }

  /// Merges `b` into `a` if that makes no cycle and one kernel can hold both.
  bool try_merge(int a, int b) {
    if (a == b) return true;
    if (first_node(a).op->kind == OpKind::Kernel || first_node(b).op->kind == OpKind::Kernel) return false;
    if (first_node(a).segment != first_node(b).segment) return false;
    if (path_around(a, b) || path_around(b, a)) return false;
    auto& nodes_a = state_.clusters[static_cast<std::size_t>(a)];
    auto& nodes_b = state_.clusters[static_cast<std::size_t>(b)];
    const std::vector<NodeId> old_a = nodes_a, old_b = nodes_b;
    nodes_a.insert(nodes_a.end(), old_b.begin(), old_b.end());
    std::ranges::sort(nodes_a);
    nodes_b.clear();
    for (const NodeId n : old_b) state_.cluster_of[n] = a;
    BuildFailure failure;
    const auto kernel = build_kernel(state_, a, failure);
    if (kernel && has_room(*kernel) && is_parallel(*kernel) && !blocks_update_in_place(*kernel) &&
        can_be_split(*kernel)) {
      for (NodeId n = nodes_a.front() + 1; n < nodes_a.back(); ++n) reach_[n] = std::max(reach_[n], nodes_a.back());
      return true;
    }
    for (const NodeId n : old_b) state_.cluster_of[n] = b;
    state_.clusters[static_cast<std::size_t>(a)] = old_a;
    state_.clusters[static_cast<std::size_t>(b)] = old_b;
    return false;
  }

  /// Room for the workspace and counters of a split variant.
  bool has_room(const FusedKernel& kernel) const {
    return kernel.kind == FusedKernel::Kind::Pointwise || kernel.operands.size() + 2 <= caps_.max_storage_buffers;
  }

  static bool is_parallel(const FusedKernel& kernel) {
    if (kernel.kind != FusedKernel::Kind::Reduction) return true;
    std::int64_t rows = 1, elements = 1;
    for (std::size_t d = 0; d < kernel.space.size(); ++d) {
      elements *= kernel.space[d];
      if (d < kernel.outer_rank) rows *= kernel.space[d];
    }
    const bool full = std::ranges::any_of(kernel.body.stores, [](const Store& store) { return !store.outer; });
    return !full || rows >= kFewRows || elements <= kFewElements;
  }

  /// A tensor that one descriptor does not cover is seen at one place by each reduction, so that a row split can find a window.
  bool can_be_split(const FusedKernel& kernel) const {
    if (kernel.kind != FusedKernel::Kind::Reduction) return true;
    for (std::uint32_t i = 0; i < kernel.operands.size(); ++i) {
      const KernelOperand& operand = kernel.operands[i];
      if (operand.part_elements == 0 && device_bytes(operand.dtype, operand.elements) <= caps_.max_storage_range) continue;
      const Access* seen = nullptr;
      for (const Instr& instr : kernel.body.instrs) {
        if (instr.kind != Instr::Kind::Load || instr.operand != i) continue;
        if (seen != nullptr && *seen != instr.access) return false;
        seen = &instr.access;
      }
    }
    return true;
  }

  /// A reduction reads its operands in other invocations than it writes: a state that it updates would need a copy.
  bool blocks_update_in_place(const FusedKernel& kernel) const {
    return kernel.kind == FusedKernel::Kind::Reduction &&
           std::ranges::any_of(kernel.operands, [&](const KernelOperand& operand) {
             return operand.written && state_.assigned_to[operand.value.node] != operand.value.node;
           });
  }

  void join_producers() {
    for (NodeId n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.node(n);
      if (state_.cluster_of[n] == FusionState::kNone) continue;
      const bool product = node.op->kind == OpKind::Product;
      auto sources = producers(state_.cluster_of[n]);
      // Products first: their epilogue is free. Then reductions, then the rest.
      std::ranges::stable_sort(sources, {}, [&](int c) {
        return has_kind(c, OpKind::Product) ? 0 : has_kind(c, OpKind::Reduce) ? 1 : 2;
      });
      for (int source : sources) {
        // Clusters may have merged meanwhile; an emptied one has gone into this node's.
        if (state_.clusters[static_cast<std::size_t>(source)].empty()) continue;
        const int own = state_.cluster_of[n];
        if (source == own) continue;
        if (product ? is_prologue(source, own) : is_worthwhile(source, n)) try_merge(source, own);
      }
    }
  }

  /// Loader of a product: cheap, at most two tensors, needed by this product alone. A narrow product computes its few rows again in
  /// each workgroup, which costs less than a barrier.
  bool is_prologue(int source, int product) const {
    int cost = 0;
    std::int64_t elements = 0;
    for (const NodeId n : state_.clusters[static_cast<std::size_t>(source)]) {
      const Node& node = graph_.node(n);
      if (node.op->kind != OpKind::Pointwise && node.op->kind != OpKind::Gather) return false;
      cost += node.op->pointwise.cost;
      elements = std::max(elements, node.results[0].shape.elements());
      if (state_.external[n] || state_.storage[n].node != n) return false;
      for (const NodeId user : state_.readers[n]) {
        if (state_.cluster_of[user] != source && state_.cluster_of[user] != product) return false;
      }
    }
    const bool few = std::ranges::any_of(state_.clusters[static_cast<std::size_t>(product)],
                                         [&](NodeId n) { return few_times(elements, n); });
    return cost <= (few ? kFewCost : kCheap) && producers(source).size() + leaf_tensors(source) <= (few ? 4 : 2);
  }
  std::size_t leaf_tensors(int id) const {
    std::vector<NodeId> leaves;
    for (const NodeId n : state_.clusters[static_cast<std::size_t>(id)]) {
      for (const ValueId input : graph_.node(n).inputs) {
        NodeId source = input.node;
        while (state_.transparent[source] && graph_.node(source).op->kind == OpKind::Movement) source = graph_.node(source).inputs[0].node;
        if (graph_.node(source).op->kind == OpKind::Leaf && !state_.is_literal(source) &&
            std::ranges::find(leaves, source) == leaves.end()) {
          leaves.push_back(source);
        }
      }
    }
    return leaves.size();
  }

  /// Columns (or rows) of a product with few rows (or columns): it reads its long operand once, and a barrier takes about as long as that. 0 for
  /// anything else.
  std::int64_t long_side(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.op->kind != OpKind::Product) return 0;
    std::vector<TensorType> operands;
    for (const ValueId input : node.inputs) operands.push_back(graph_.type(input));
    const Contraction contraction = node.op->contraction(node, operands);
    std::int64_t rows = 1, columns = 1;
    for (std::size_t d = 0; d < contraction.roles.size(); ++d) {
      const std::int64_t extent = node.results[0].shape[static_cast<int>(d)];
      if (contraction.roles[d] == Contraction::Role::Row) rows *= extent;
      if (contraction.roles[d] == Contraction::Role::Column) columns *= extent;
    }
    return std::min(rows, columns) <= kGemvRows ? std::max(rows, columns) : 0;
  }
  /// Whether a narrow product may compute a value of so many elements again and again.
  bool few_times(std::int64_t elements, NodeId product) const {
    const std::int64_t side = long_side(product);
    return side > 0 && elements <= kGemvRows * kFewElements && elements * side <= kFewTimes;
  }

  /// `n` combines products that do not need each other, for a narrow product alone: in the epilogue of one it would wait for the other; in
  /// the loader of its reader it waits for nothing, and few rows are computed again soon.
  bool joins_products_for_a_narrow_one(NodeId n) {
    const auto& readers = state_.readers[n];
    if (graph_.node(n).op->kind != OpKind::Pointwise || graph_.node(n).op->pointwise.cost > kCheap ||
        readers.size() != 1 || !few_times(graph_.node(n).results[0].shape.elements(), readers[0]) || state_.external[n])
      return false;
    std::vector<int> products = producers(state_.cluster_of[n]);
    std::erase_if(products, [&](int c) { return !has_kind(c, OpKind::Product); });
    return products.size() == 2 && !path_around(products[0], products[1]) && !path_around(products[1], products[0]);
  }

  bool is_scaled_late(int id) const {
    return std::ranges::any_of(state_.clusters[static_cast<std::size_t>(id)], [&](NodeId n) {
      return graph_.node(n).op->kind == OpKind::Product && state_.users[n].size() == 1 &&
             late_scaled_product(state_.users[n][0]) == n;
    });
  }

  /// Whether node `n` gains by living in the cluster of its producer.
  bool is_worthwhile(int source, NodeId n) {
    const Node& node = graph_.node(n);
    const auto& nodes = state_.clusters[static_cast<std::size_t>(source)];
    const std::int64_t size = node.results[0].shape.elements();
    // An expensive small value would be recomputed for every element of a broadcast; in a reduction it is computed once per row.
    const bool reduction = has_kind(source, OpKind::Reduce);
    // The statistic of a late scale would wait for the product that runs beside it.
    if (reduction && std::ranges::any_of(producers(state_.cluster_of[n]), [&](int c) { return is_scaled_late(c); }))
      return false;
    if (!reduction && (node.op->kind == OpKind::Pointwise || node.op->kind == OpKind::Gather)) {
      int cost = 0;
      std::int64_t largest = 0;
      for (const NodeId m : nodes) {
        if (graph_.node(m).op->kind == OpKind::Pointwise) cost += graph_.node(m).op->pointwise.cost;
        largest = std::max(largest, graph_.node(m).results[0].shape.elements());
      }
      if (largest < size && cost >= kTranscendental) return false;
    }
    // Into a product whose value is stored anyway, a value that only reductions read (x * x before a sum) would be stored
    // once more: it is better computed by its reader.
    if (has_kind(source, OpKind::Product)) {
      if (joins_products_for_a_narrow_one(n) || is_scaled_late(source)) return false;
      const auto& users = state_.readers[n];
      const bool for_reductions = !state_.external[n] && !users.empty() && std::ranges::all_of(users, [&](NodeId user) {
        return graph_.node(user).op->kind == OpKind::Reduce;
      });
      const bool stored_anyway = std::ranges::all_of(nodes, [&](NodeId m) {
        const auto& m_users = state_.readers[m];
        if (std::ranges::find(m_users, n) == m_users.end()) return true;
        return state_.external[m] || std::ranges::any_of(m_users, [&](NodeId user) {
                 return user != n && state_.cluster_of[user] != source;
               });
      });
      if (for_reductions && stored_anyway) return false;
    }
    return true;
  }

  /// Kernels of one kind over one space that read the same large tensor become one.
  void join_siblings() {
    std::vector<std::vector<int>> readers(graph_.nodes().size());
    for (std::size_t id = 0; id < state_.clusters.size(); ++id) {
      if (state_.clusters[id].empty() || has_kind(static_cast<int>(id), OpKind::Product) ||
          has_kind(static_cast<int>(id), OpKind::Kernel)) {
        continue;
      }
      if (!alive(static_cast<int>(id))) continue;
      BuildFailure failure;
      const auto kernel = build_kernel(state_, static_cast<int>(id), failure);
      if (!kernel) continue;
      std::int64_t size = 1;
      for (const std::int64_t e : kernel->space) size *= e;
      for (const KernelOperand& operand : kernel->operands) {
        // Windows are several times as large as what they are of.
        const bool whole = kernel->kind == FusedKernel::Kind::Reduction ? operand.elements >= size / kWindow : operand.elements == size;
        if (!operand.written && whole && size > 1) readers[operand.value.node].push_back(static_cast<int>(id));
      }
    }
    for (auto& list : readers) {
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        for (std::size_t j = i + 1; j < list.size(); ++j) {
          const int a = list[i], b = list[j];
          if (state_.clusters[static_cast<std::size_t>(a)].empty() || state_.clusters[static_cast<std::size_t>(b)].empty()) continue;
          if (has_kind(a, OpKind::Reduce) != has_kind(b, OpKind::Reduce)) continue;
          try_merge(a, b);
        }
      }
    }
  }

  bool alive(int id) const {
    return std::ranges::any_of(state_.clusters[static_cast<std::size_t>(id)], [&](NodeId n) { return state_.escapes(n); });
  }

  /// Kernels in topological order of their clusters; ties by the first node.
  std::vector<FusedKernel> emit() {
    std::vector<std::size_t> waiting(state_.clusters.size(), 0);
    using Entry = std::pair<NodeId, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (std::size_t id = 0; id < state_.clusters.size(); ++id) {
      if (state_.clusters[id].empty()) continue;
      waiting[id] = producers(static_cast<int>(id)).size();
      if (waiting[id] == 0) ready.emplace(state_.clusters[id][0], static_cast<int>(id));
    }
    std::vector<FusedKernel> kernels;
    std::size_t emitted = 0;
    while (!ready.empty()) {
      const int id = ready.top().second;
      ready.pop();
      ++emitted;
      if (alive(id)) {
        BuildFailure failure;
        auto kernel = build_kernel(state_, id, failure);
        if (!kernel) fail(ErrorCode::Internal, "fuse: an accepted cluster does not build: {}", failure.why);
        kernels.push_back(std::move(*kernel));
      }
      for (const int next : consumers(id)) {
        if (--waiting[static_cast<std::size_t>(next)] == 0) ready.emplace(state_.clusters[static_cast<std::size_t>(next)][0], next);
      }
    }
    const auto all = std::ranges::count_if(state_.clusters, [](const auto& c) { return !c.empty(); });
    if (emitted != static_cast<std::size_t>(all)) fail(ErrorCode::Internal, "fuse: clusters form a cycle");
    return kernels;
  }
};

}  // namespace

std::vector<FusedKernel> fuse(const Graph& graph, const Caps& caps, bool fusion) { return Fuser(graph, caps, fusion).run(); }

}  // namespace aeshna
