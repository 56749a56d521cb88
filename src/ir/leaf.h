#pragma once
// What the attributes of leaf nodes mean. Leaves keep their type as attrs "dtype" and "dims" (constants: the Literal "value"),
// parameters and states their first value as "init", "init_a", "init_b", parameters "trainable", "lr_scale", "decay_scale".
#include <string_view>

#include "aeshna/graph.h"

namespace aeshna {

std::string_view init_kind_name(Init::Kind kind);
/// The Init of a parameter or state node. Throws Error(InvalidArgument) for an unknown kind.
Init leaf_init(const Node& node);

bool is_input(const Node& node);
bool is_parameter(const Node& node);
bool is_state(const Node& node);
bool is_constant(const Node& node);
/// Draws random numbers: has the attr "stream", and the step as its last operand.
bool is_random(const Node& node);

}  // namespace aeshna
