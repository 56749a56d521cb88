#include "nn/layer.h"

#include "base/fail.h"
#include "base/format.h"

namespace aeshna::nn {

void Call::reject(ErrorCode code, std::string_view message) const {
  throw Error(code, formatted("{} {}", who_, message)).context("the call at " + SourceLine(loc_).to_string());
}

Layer::Layer(std::string_view kind, std::string_view name, const Value& x, const Loc& loc)
    : Call(name.empty() ? formatted("[nn::{}]", kind) : formatted("[nn::{}] '{}'", kind, name), loc),
      name_(name),
      x_(x) {
  if (!x) reject(ErrorCode::InvalidArgument, "needs an input: the Value is empty");
  if (name.empty()) reject(ErrorCode::InvalidArgument, "needs a name");
}

Value Layer::parameter(std::string_view part_name, Shape shape, std::optional<Init> init, bool trainable) const {
  return graph().parameter(part(part_name), shape, {.init = init, .dtype = x_.dtype(), .trainable = trainable}, loc());
}

}  // namespace aeshna::nn
