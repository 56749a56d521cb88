#pragma once
// Optimizer updates as graph nodes, composed of pointwise primitives so that each parameter's update fuses into one kernel.
#include <functional>
#include <string>

#include "aeshna/graph.h"
#include "aeshna/optim.h"

namespace aeshna {

/// What every update of a step shares: rank-0 values.
struct UpdateScalars {
  Value lr;    ///< f32 input `aeshna.lr`
  Value step;  ///< f32: number of this update, from 1
  Value ok;    ///< boolean: false on a bad step, in which case nothing may change
  Value scale; ///< f32 factor of the gradients (clipping); may be empty
};

/// Appends the update of one parameter: new parameter value and new moments are assigned; moments are state leaves
/// "aeshna.opt.<slot>/<name>" (slots: "momentum", "m", "v"), created only when the optimizer uses them.
void append_update(Graph& graph, const Optimizer& optimizer, Value parameter, Value gradient, const UpdateScalars& scalars,
                   double lr_scale, double decay_scale);

}  // namespace aeshna
