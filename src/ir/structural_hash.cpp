#include "ir/structural_hash.h"

#include <bit>

#include "ir/op.h"

namespace aeshna {

namespace {

void add_type(Hasher& hash, const TensorType& type) {
  hash.add(static_cast<std::uint64_t>(type.dtype)).add(std::as_bytes(type.shape.dims()));
}

class SpecHasher {
 public:
  Hasher::Key key() const { return hash_.key(); }

  void spec(const KernelSpec& spec) {
    text(spec.family);
    text(spec.variant);
    for (const auto& [name, value] : spec.constants) {
      text(name);
      number(value);
    }
    for (const std::uint32_t size : spec.local) number(size);
    number(spec.workgroups);
    number(spec.shared_bytes);
    number(spec.workspace_bytes);
    number(spec.counters);
    kernel(*spec.fused);
  }

 private:
  template <class T>
  void number(T value) {
    hash_.add(static_cast<std::uint64_t>(value));
  }
  void text(std::string_view value) { hash_.add(value); }
  void numbers(const auto& values) {
    number(values.size());
    for (const auto& value : values) number(value);
  }

  void kernel(const FusedKernel& kernel) {
    number(kernel.kind);
    numbers(kernel.space);
    number(kernel.outer_rank);
    number(kernel.row_rank);
    number(kernel.column_rank);
    number(kernel.k);
    body(kernel.body);
    body(kernel.a);
    body(kernel.b);
    call(kernel.call);
    number(kernel.operands.size());
    for (const KernelOperand& operand : kernel.operands) {
      number(operand.dtype);
      number(operand.elements);
      number(operand.part_elements);
      number(operand.first_element);
      number(operand.written);
      number(operand.in_place_of ? std::uint64_t{*operand.in_place_of} + 1 : 0);
    }
    text(kernel.anchor != nullptr ? std::string_view(kernel.anchor->name) : std::string_view());
    number(kernel.precision);
  }

  void body(const Body& body) {
    number(body.instrs.size());
    for (const Instr& instr : body.instrs) {
      number(instr.kind);
      number(instr.dtype);
      number(instr.operand);
      access(instr.access);
      number(std::bit_cast<std::uint64_t>(instr.literal));
      number(instr.dim);
      text(instr.op != nullptr ? std::string_view(instr.op->name) : std::string_view());
      number(instr.reduce);
      number(instr.rounding);
      numbers(instr.args);
    }
    number(body.stores.size());
    for (const Store& store : body.stores) {
      number(store.operand);
      number(store.value);
      access(store.access);
      number(store.outer);
    }
    numbers(body.k);
  }

  void access(const Access& access) {
    numbers(access.strides);
    number(access.offset);
    number(access.guards.size());
    for (const Access::Guard& guard : access.guards) {
      number(guard.terms.size());
      for (const auto& [dim, coefficient] : guard.terms) {
        number(dim);
        number(coefficient);
      }
      number(guard.low);
      number(guard.high);
    }
    number(std::bit_cast<std::uint64_t>(access.fill));
    number(access.dynamic.size());
    for (const auto& [stride, extent] : access.dynamic) {
      number(stride);
      number(extent);
    }
  }

  void call(const TemplateCall& call) {
    add_attrs(hash_, call.attrs);
    types(call.inputs);
    types(call.results);
    number(call.views.size());
    for (const Access& view : call.views) access(view);
    numbers(call.input_operands);
    numbers(call.result_operands);
    number(call.updated.has_value());
  }

  void types(const std::vector<TensorType>& types) {
    number(types.size());
    for (const TensorType& type : types) add_type(hash_, type);
  }

  Hasher hash_;
};

void add_attr(Hasher& hash, const AttrValue& value) {
  hash.add(std::uint64_t{value.index()});
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, std::string>) {
          hash.add(std::string_view(v));
        } else if constexpr (std::is_same_v<T, double>) {
          hash.add(std::bit_cast<std::uint64_t>(v));
        } else if constexpr (std::is_same_v<T, Literal>) {
          add_type(hash, v.type());
          hash.add(v.bytes());
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          hash.add(std::uint64_t{v.size()});
          for (const std::int64_t x : v) hash.add(static_cast<std::uint64_t>(x));
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          hash.add(std::uint64_t{v.size()});
          for (const double x : v) hash.add(std::bit_cast<std::uint64_t>(x));
        } else {
          hash.add(static_cast<std::uint64_t>(v));
        }
      },
      value);
}

}  // namespace

void add_attrs(Hasher& hash, const Attrs& attrs) {
  hash.add(std::uint64_t{attrs.items().size()});
  for (const auto& [name, value] : attrs.items()) {
    hash.add(name);
    add_attr(hash, value);
  }
}

Hasher::Key signature(const KernelSpec& spec) {
  SpecHasher hasher;
  hasher.spec(spec);
  return hasher.key();
}

}  // namespace aeshna
