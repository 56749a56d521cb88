// Comparisons, booleans and bits.
#include <array>
#include <cmath>

#include "base/format.h"
#include "io/onnx/translate.h"

namespace aeshna::onnx {
namespace {

template <Value (*F)(Operand, Operand)>
Values compare(Context& c) {
  const Value b = second_operand(c);
  return {F(widen(c.in(0)), widen(b))};
}

template <Value (*F)(Operand, Operand)>
Values logical(Context& c) {
  const Value b = second_operand(c);
  return {F(c.in(0), b)};
}

Values not_of(Context& c) { return {logical_not(c.in(0))}; }

Values where(Context& c) {
  const Value a = c.in(1), b = c.in(2);
  return {in_wide(a, b, [&](Value x, Value y) { return select(c.in(0), x, y); })};
}

// ---- bits, by arithmetic on u32: there is no bitwise op in the vocabulary

int width(Context& c) {
  const int bits = static_cast<int>(dtype_info(c.dtype(0)).block_bytes) * 8;
  if (bits > 32) c.refuse(formatted("bits of {}: a device has 32 of them", dtype_name(c.dtype(0))));
  return bits;
}

enum class Bits : std::uint8_t { And, Or, Xor };

template <Bits how>
Values bitwise(Context& c) {
  const int bits = width(c);
  const DType dtype = c.dtype(0);
  Value a = cast(c.in(0), DType::u32), b = cast(c.in(1), DType::u32);
  Value both;  // the bits that both have
  for (int bit = 0; bit < bits; ++bit) {
    const Value term = mul(mul(mod(a, 2), mod(b, 2)), std::ldexp(1.0, bit));
    both = both ? both + term : term;
    if (bit + 1 < bits) a = div(a, 2), b = div(b, 2);
  }
  if (how == Bits::And) return {cast(both, dtype)};
  const Value sum = cast(c.in(0), DType::u32) + cast(c.in(1), DType::u32);
  return {cast(how == Bits::Or ? sum - both : sum - both - both, dtype)};
}

Values bitwise_not(Context& c) {  // -1 - x
  width(c);
  const DType dtype = c.dtype(0);
  return {cast(sub(-1, cast(c.in(0), DType::i32)), dtype)};
}

Values bit_shift(Context& c) {
  const int bits = width(c);
  const std::string direction = c.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") c.refuse("direction is '" + direction + "'");
  const DType dtype = c.dtype(0);
  const Value x = cast(c.in(0), DType::u32), by = cast(c.in(1), DType::u32);
  // 2^by, a factor for each bit of by; 0 from the width on.
  Value factor, rest = by;
  for (int bit = 0; bit < 5; ++bit) {
    const Value f = select(equal(mod(rest, 2), 1), std::ldexp(1.0, 1 << bit), add(mul(rest, 0), 1));
    factor = factor ? mul(factor, f) : f;
    rest = div(rest, 2);
  }
  const Value y = direction == "LEFT" ? mul(x, factor) : div(x, factor);
  return {cast(select(less(by, static_cast<double>(bits)), y, 0), dtype)};
}

}  // namespace

std::span<const Op> logic_ops() {
  static constexpr std::array table = {
      Op{"And", logical<logical_and>},
      Op{"BitShift", bit_shift, 11},
      Op{"BitwiseAnd", bitwise<Bits::And>, 18},
      Op{"BitwiseNot", bitwise_not, 18},
      Op{"BitwiseOr", bitwise<Bits::Or>, 18},
      Op{"BitwiseXor", bitwise<Bits::Xor>, 18},
      Op{"Equal", compare<equal>},
      Op{"Greater", compare<greater>},
      Op{"GreaterOrEqual", compare<greater_equal>, 12},
      Op{"Less", compare<less>},
      Op{"LessOrEqual", compare<less_equal>, 12},
      Op{"Not", not_of},
      Op{"Or", logical<logical_or>},
      Op{"Where", where, 9},
      Op{"Xor", logical<logical_xor>},
  };
  return table;
}

}  // namespace aeshna::onnx
