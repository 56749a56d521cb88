#include "runtime/initial.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ir/leaf.h"

namespace aeshna {
namespace {

struct Fans {
  double in = 1, out = 1;
};

Fans fans(const Shape& shape) {
  Fans fans;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto extent = static_cast<double>(shape[axis]);
    if (axis != 0) fans.in *= extent;
    if (axis != 1) fans.out *= extent;
  }
  return fans;
}

}  // namespace

Literal initial_value(const Node& leaf, std::uint64_t seed) {
  const TensorType& type = leaf.results.at(0);
  const auto count = static_cast<std::size_t>(type.shape.elements());
  if (leaf.name == "aeshna.seed") {
    if (count != 2) fail(ErrorCode::ShapeMismatch, "state 'aeshna.seed' has type {}, not u32[2]", type.to_string());
    const double words[] = {static_cast<double>(seed & 0xFFFFFFFFu), static_cast<double>(seed >> 32)};
    return Literal::from_doubles(type, words);
  }

  const Init init = leaf_init(leaf);
  const Fans fan = fans(type.shape);
  PhiloxStream stream(seed, Hasher().add(std::string_view(leaf.name)).low());
  const auto uniform = [&](double low, double high) { return low + (high - low) * stream.next_uniform(); };
  const auto normal = [&](double mean, double deviation) { return mean + deviation * stream.next_normal(); };
  const auto draw = [&]() -> double {
    switch (init.kind) {
      case Init::Kind::Zeros:
        return 0;
      case Init::Kind::Constant:
        return init.a;
      case Init::Kind::Uniform:
        return uniform(init.a, init.b);
      case Init::Kind::Normal:
        return normal(init.a, init.b);
      // He et al. 2015, equation 10; the bound of a uniform distribution is sqrt(3) standard deviations.
      case Init::Kind::KaimingUniform:
        return uniform(-1, 1) * init.a * std::sqrt(3 / fan.in);
      case Init::Kind::KaimingNormal:
        return normal(0, init.a / std::sqrt(fan.in));
      // Glorot & Bengio 2010, equation 16.
      case Init::Kind::XavierUniform:
        return uniform(-1, 1) * init.a * std::sqrt(6 / (fan.in + fan.out));
      case Init::Kind::XavierNormal:
        return normal(0, init.a * std::sqrt(2 / (fan.in + fan.out)));
    }
    internal_error("unknown initialiser");
  };
  if (type.dtype == DType::f32) {  // the usual case, without a copy in doubles
    std::vector<std::byte> bytes(count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(draw());
      std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
    }
    return Literal(type, std::move(bytes));
  }
  std::vector<double> values(count);
  for (double& value : values) value = draw();
  return Literal::from_doubles(type, values);
}

}  // namespace aeshna
