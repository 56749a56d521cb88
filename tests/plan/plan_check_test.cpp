// Random graphs with random kernels: every plan is sound; every planted fault is found by check_plan.
#include <gtest/gtest.h>

#include <functional>

#include "base/philox.h"
#include "plan/plan_builder.h"

namespace aeshna {
namespace {

using test::joined;
using test::PlanBuilder;

/// Leaves, elementwise nodes in three segments, assigns of every kind, outputs of every kind; kernels of one or two nodes,
/// some split by rows, some with workspace and counters, most with a tied operand.
PlanBuilder random_graph(std::uint64_t seed) {
  PlanBuilder b;
  Graph& g = b.graph();
  PhiloxStream stream(seed, 77);
  const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(stream.next_below(n)); };
  const std::vector<Shape> shapes = {{}, {64}, {192}, {1000}, {0}};
  std::vector<std::vector<Value>> pools(shapes.size());
  std::vector<Value> assignable;
  for (std::size_t i = 0; i < 4 + below(6); ++i) {
    const std::size_t k = below(shapes.size());
    const std::string name = "leaf" + std::to_string(i);
    const std::size_t kind = below(4);
    const Value leaf = kind == 0   ? g.input(name, shapes[k])
                       : kind == 1 ? g.parameter(name, shapes[k])
                                   : g.state(name, shapes[k]);
    if (kind != 0) assignable.push_back(leaf);
    pools[k].push_back(leaf);
  }
  std::vector<Value> computed;
  for (const Segment segment : {Segment::Forward, Segment::Backward, Segment::Update}) {
    const std::size_t count = 1 + below(12);
    std::vector<Value> pending;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t k = below(shapes.size());
      if (pools[k].empty()) continue;
      // Recent values more often: deep graphs.
      const auto pick = [&] {
        return pools[k][pools[k].size() - 1 -
                        below(below(2) == 0 ? std::min<std::size_t>(pools[k].size(), 3) : pools[k].size())];
      };
      const std::size_t op = below(3);
      const Value value = op == 0   ? neg(pick())
                          : op == 1 ? add(pick(), pick())
                                    : select(less(pick(), 1.0), pick(), pick());
      std::vector<Value> nodes = {value};
      if (op == 2) nodes.insert(nodes.begin(), g.value(value.node().inputs[0]));
      for (const Value& node : nodes) test::with_segment(node, segment);
      pools[k].push_back(value);
      computed.push_back(value);

      PlanBuilder::KernelOptions options;
      options.tie = below(4) != 0;
      options.kind = below(4) == 0 ? FusedKernel::Kind::Reduction : FusedKernel::Kind::Pointwise;
      if (below(4) == 0) options.workspace = 4 * (1 + below(2000));
      if (below(4) == 0) options.counters = static_cast<std::uint32_t>(1 + below(80));
      const std::int64_t elements = value.shape().elements();
      if (elements >= 192 && below(3) == 0) {  // by rows, sometimes with windows that overlap
        const std::int64_t cut = 64 * static_cast<std::int64_t>(1 + below(2));
        options.count = below(4) == 0 ? cut + 32 : cut;
        b.kernel(nodes, options);
        options.first = cut;
        options.count = elements - cut;
      }
      b.kernel(nodes, options);
    }
  }
  for (const Value& leaf : assignable) {
    std::vector<Value> candidates;
    for (const auto& pool : pools) {
      for (const Value& value : pool) {
        if (value.type() == leaf.type()) candidates.push_back(value);
      }
    }
    if (below(5) == 0) continue;
    g.assign(leaf, candidates[below(candidates.size())]);
    Node& node = g.mutable_node(g.assigns().back());
    if (below(3) == 0) node.segment = std::max(node.segment, static_cast<Segment>(below(3)));
  }
  int outputs = 0;
  for (const auto& pool : pools) {
    for (const Value& value : pool) {
      for (std::size_t names = below(6); names >= 4; --names) g.output("out" + std::to_string(outputs++), value);
    }
  }
  if (below(3) == 0) b.c.caps.max_buffer_size = 12288;
  b.c.caps.storage_alignment = 64u << below(3);
  return b;
}

TEST(RandomPlans, AreSoundAndAliasingSaves) {
  std::uint64_t saved = 0;
  std::size_t in_place = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    PlanBuilder b = random_graph(seed);
    const Plan shared = b.plan(true);
    const Plan apart = b.plan(false);
    ASSERT_EQ(joined(check_plan(shared, b.c.caps)), "") << b.graph().print() << print_plan(shared);
    ASSERT_EQ(joined(check_plan(apart, b.c.caps)), "") << b.graph().print() << print_plan(apart);
    EXPECT_LE(shared.memory.arena_bytes, apart.memory.arena_bytes);
    EXPECT_EQ(shared.memory.logical_bytes, apart.memory.logical_bytes);
    EXPECT_EQ(print_plan(shared), print_plan(b.plan(true)));
    saved += apart.memory.arena_bytes - shared.memory.arena_bytes;
    for (const PlanStep& step : shared.steps) {
      for (const PlanOperand& operand : step.operands) {
        const Home home = shared.placements[operand.placement].home;
        in_place +=
            step.kind == PlanStep::Kind::Dispatch && operand.written && (home == Home::State || home == Home::Parameter)
                ? 1
                : 0;
      }
    }
  }
  EXPECT_GT(saved, 100000u);
  EXPECT_GT(in_place, 100u);  // the hard cases do occur
}

/// Plants a fault in every random plan where it can be; all must be found, and the fault must have been plantable often.
void expect_found(std::string_view part, std::size_t at_least, const std::function<bool(Plan&, PhiloxStream&)>& plant) {
  std::size_t planted = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    PlanBuilder b = random_graph(seed);
    Plan plan = b.plan();
    PhiloxStream stream(seed, 78);
    if (!plant(plan, stream)) continue;
    ++planted;
    const std::string findings = joined(check_plan(plan, b.c.caps));
    ASSERT_NE(findings.find(part), std::string::npos)
        << "seed " << seed << ": no '" << part << "' in: " << findings << print_plan(plan);
  }
  EXPECT_GE(planted, at_least);
}

TEST(PlanCheck, FindsADroppedBarrier) {
  expect_found(" in group ", 150, [](Plan& plan, PhiloxStream& stream) {
    std::vector<std::uint32_t> inner;  // barriers inside a segment
    for (std::size_t i = 1; i < plan.steps.size(); ++i) {
      if (plan.steps[i].segment == plan.steps[i - 1].segment && plan.steps[i].group != plan.steps[i - 1].group)
        inner.push_back(plan.steps[i].group);
    }
    if (inner.empty()) return false;
    const std::uint32_t dropped = inner[stream.next_below(inner.size())];
    for (PlanStep& step : plan.steps) step.group -= step.group >= dropped ? 1 : 0;
    for (Placement& p : plan.placements) {  // as a planner that forgot the barrier would say
      p.first_group -= p.first_group >= dropped ? 1 : 0;
      p.last_group -= p.last_group >= dropped ? 1 : 0;
    }
    --plan.barrier_groups;
    return true;
  });
}

TEST(PlanCheck, FindsOverlappingTensors) {
  expect_found("while both are live", 100, [](Plan& plan, PhiloxStream&) {
    for (Placement& a : plan.placements) {
      for (const Placement& b : plan.placements) {
        const bool arenas = a.home == Home::Arena && b.home == Home::Arena && &a != &b && a.bytes > 0 && b.bytes > 0;
        if (!arenas || a.arena != b.arena || a.offset == b.offset) continue;
        if (a.first_group > b.last_group || b.first_group > a.last_group || b.offset + a.bytes > plan.arenas[b.arena])
          continue;
        if (a.last_group == b.first_group || b.last_group == a.first_group) continue;  // could be a legal take-over
        a.offset = b.offset;
        return true;
      }
    }
    return false;
  });
}

TEST(PlanCheck, FindsAWrongLifetime) {
  expect_found("outside its life", 150, [](Plan& plan, PhiloxStream&) {
    for (Placement& p : plan.placements) {
      if (p.home == Home::Arena && p.last_group > p.first_group) {
        p.last_group = p.first_group;
        return true;
      }
    }
    return false;
  });
}

TEST(PlanCheck, FindsWriteAfterWriteInOneGroup) {
  expect_found("WAW between", 190, [](Plan& plan, PhiloxStream& stream) {
    if (plan.steps.empty()) return false;
    std::size_t at = stream.next_below(plan.steps.size());
    for (std::size_t i = 0; i < plan.steps.size(); ++i, at = (at + 1) % plan.steps.size()) {
      const bool writes =
          std::ranges::any_of(plan.steps[at].operands, [](const PlanOperand& o) { return o.written && o.bytes > 0; });
      if (!writes) continue;
      const PlanStep twice = plan.steps[at];
      plan.steps.insert(plan.steps.begin() + static_cast<std::ptrdiff_t>(at), twice);
      return true;
    }
    return false;
  });
}

TEST(PlanCheck, FindsMisalignedRanges) {
  expect_found("misaligned", 150, [](Plan& plan, PhiloxStream&) {
    for (Placement& p : plan.placements) {
      if (p.home != Home::Arena || p.offset + p.bytes + 4 > plan.arenas[p.arena]) continue;
      p.offset += 4;
      return true;
    }
    return false;
  });
  expect_found("misaligned", 20, [](Plan& plan, PhiloxStream&) {
    for (PlanStep& step : plan.steps) {
      for (PlanOperand& operand : step.operands) {
        if (step.kind == PlanStep::Kind::Copy || operand.offset == 0) continue;
        operand.offset -= 4;
        return true;
      }
    }
    return false;
  });
}

TEST(PlanCheck, FindsAMissingWriter) {
  expect_found("", 150, [](Plan& plan, PhiloxStream& stream) {
    // Steps whose result is read later or kept; all are, except dead and empty ones.
    std::vector<std::size_t> needed;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      for (const PlanOperand& w : plan.steps[i].operands) {
        if (!w.written || w.bytes == 0 || w.read) continue;
        const Home home = plan.placements[w.placement].home;
        bool read = home != Home::Arena;
        for (std::size_t j = i + 1; j < plan.steps.size() && !read; ++j) {
          for (const PlanOperand& r : plan.steps[j].operands)
            read = read || (r.read && !r.written && r.placement == w.placement);
        }
        if (read) needed.push_back(i);
      }
    }
    if (needed.empty()) return false;
    plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(needed[stream.next_below(needed.size())]));
    return true;
  });
}

TEST(PlanCheck, FindsAWriterMovedBehindItsReader) {
  expect_found("does not", 150, [](Plan& plan, PhiloxStream&) {
    for (std::size_t i = 0; i + 1 < plan.steps.size(); ++i) {
      PlanStep& a = plan.steps[i];
      for (std::size_t j = i + 1; j < plan.steps.size(); ++j) {
        PlanStep& b = plan.steps[j];
        if (a.segment != b.segment || a.group == b.group || a.kind != b.kind || a.kind == PlanStep::Kind::Copy)
          continue;
        const bool raw = std::ranges::any_of(a.operands, [&](const PlanOperand& w) {
          return w.written && !w.read && w.bytes > 0 && std::ranges::any_of(b.operands, [&](const PlanOperand& r) {
                   return r.read && !r.written && r.placement == w.placement && r.offset == w.offset;
                 });
        });
        const bool twice = std::ranges::any_of(plan.steps, [&](const PlanStep& s) {  // rows: another part writes it too
          return &s != &a && std::ranges::any_of(s.operands, [&](const PlanOperand& w) {
            return w.written && std::ranges::any_of(a.operands, [&](const PlanOperand& o) {
                     return o.written && o.placement == w.placement;
                   });
          });
        });
        if (!raw || twice) continue;
        std::swap(a.group, b.group);
        std::swap(a, b);
        for (Placement& p : plan.placements)
          p.first_group = 0, p.last_group = p.home == Home::Arena ? p.last_group : UINT32_MAX;
        return true;
      }
    }
    return false;
  });
}

TEST(PlanCheck, FindsFaultsOfForm) {
  const auto first_dispatch = [](Plan& plan) {
    for (PlanStep& step : plan.steps) {
      if (step.kind == PlanStep::Kind::Dispatch) return &step;
    }
    return static_cast<PlanStep*>(nullptr);
  };
  const auto form = [&](std::string_view part, std::function<void(Plan&, PlanStep&)> plant) {
    expect_found(part, 190, [&](Plan& plan, PhiloxStream&) {
      PlanStep* step = first_dispatch(plan);
      if (step == nullptr) return false;
      plant(plan, *step);
      return true;
    });
  };
  form("without placement",
       [](Plan& plan, PlanStep& s) { s.operands[0].placement = static_cast<std::uint32_t>(plan.placements.size()); });
  form("reaches outside", [](Plan&, PlanStep& s) { s.operands[0].bytes += 1u << 20; });
  form("has no fused kernel", [](Plan&, PlanStep& s) { s.spec.fused = nullptr; });
  form("binds", [](Plan&, PlanStep& s) { s.operands.push_back(s.operands[0]); });
  form("not bound as the kernel uses it", [](Plan&, PlanStep& s) { s.operands[0].written = !s.operands[0].written; });
  form("is in group", [](Plan& plan, PlanStep&) { plan.barrier_groups = 0; });
  form("exceeds max_buffer_size", [](Plan& plan, PlanStep&) { plan.arenas.push_back(1ull << 40); });
  form("has no placement", [](Plan& plan, PlanStep&) { plan.outputs["x"] = UINT32_MAX; });
}

TEST(PlanCheck, FindsOperandsOfOneDispatchThatOverlap) {
  PlanBuilder b;
  const Value x = neg(b.graph().input("x", {100}));
  const Value y = relu(x);
  b.kernel(x);
  b.kernel(y);
  b.kernel(abs(y));
  Plan plan = b.plan();
  ASSERT_EQ(joined(check_plan(plan, {})), "");
  plan.steps[1].operands[1].placement = plan.steps[1].operands[0].placement;  // not tied
  EXPECT_NE(joined(check_plan(plan, {})).find("overlap"), std::string::npos);
}

TEST(PlanCheck, FindsAnUnsavedOldValue) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  const Value late = test::with_segment(relu(s), Segment::Backward);
  b.graph().assign(s, next);
  b.graph().output("late", late);
  b.tied_kernel(next);
  b.kernel(late);
  Plan plan = b.plan();
  for (PlanStep& step : plan.steps) {
    if (step.segment == Segment::Backward) step.operands[0].placement = plan.states.at("s");  // instead of the copy
  }
  EXPECT_NE(joined(check_plan(plan, {})).find("does not find the value of operand 0 in 's'"), std::string::npos);
}

TEST(PlanCheck, FindsAnUpdateThatIsLost) {
  PlanBuilder b;
  const Value s = b.graph().state("s", {100});
  const Value next = neg(s);
  b.graph().assign(s, next);
  b.kernel(next);  // by a copy
  Plan plan = b.plan();
  ASSERT_EQ(test::copies(plan), 1u);
  plan.steps.pop_back();
  EXPECT_NE(joined(check_plan(plan, {})).find("'s' does not hold its new value"), std::string::npos);
}

}  // namespace
}  // namespace aeshna
