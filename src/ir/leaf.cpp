#include "ir/leaf.h"

#include <array>
#include <cmath>

#include "base/fail.h"
#include "ir/op.h"

namespace aeshna {

namespace {
constexpr std::array<std::string_view, 8> kInitNames = {"zeros",          "constant",       "uniform",        "normal",
                                                        "kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal"};
}

std::string_view init_kind_name(Init::Kind kind) { return kInitNames.at(static_cast<std::size_t>(kind)); }

Init leaf_init(const Node& node) {
  const auto& name = node.attrs.get<std::string>("init");
  for (std::size_t i = 0; i < kInitNames.size(); ++i) {
    if (kInitNames[i] == name) {
      const Init init{static_cast<Init::Kind>(i), node.attrs.get<double>("init_a"), node.attrs.get<double>("init_b")};
      const bool ordered = init.kind == Init::Kind::Uniform  ? init.a <= init.b
                           : init.kind == Init::Kind::Normal ? init.b >= 0
                                                             : true;
      const bool finite = std::isfinite(init.a) && std::isfinite(init.b);
      if (init.kind != Init::Kind::Constant && !(finite && ordered))
        fail(ErrorCode::InvalidArgument, "'{}' cannot be initialised by {} of {} and {}", node.name, name, init.a, init.b);
      return init;
    }
  }
  fail(ErrorCode::InvalidArgument, "'{}' has the unknown initialiser '{}'", node.name, name);
}

bool is_input(const Node& node) { return node.op->name == "input"; }
bool is_parameter(const Node& node) { return node.op->name == "parameter"; }
bool is_state(const Node& node) { return node.op->name == "state"; }
bool is_constant(const Node& node) { return node.op->name == "constant"; }
bool is_random(const Node& node) { return node.attrs.find("stream") != nullptr; }

}  // namespace aeshna
