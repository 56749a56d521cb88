#include "runtime/convert.h"

#include <cstring>
#include <limits>

#include "base/fail.h"
#include "ir/device_types.h"

namespace aeshna {
namespace {

/// Calls `f` with a value of the host type that holds one element; false when the dtype has no device form.
template <class F>
bool with_host_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      f(float{});
      return true;
    case DType::i8:
      f(std::int8_t{});
      return true;
    case DType::i16:
      f(std::int16_t{});
      return true;
    case DType::i32:
      f(std::int32_t{});
      return true;
    case DType::i64:
      f(std::int64_t{});
      return true;
    case DType::u8:
      f(std::uint8_t{});
      return true;
    case DType::u16:
      f(std::uint16_t{});
      return true;
    case DType::u32:
      f(std::uint32_t{});
      return true;
    case DType::u64:
      f(std::uint64_t{});
      return true;
    case DType::boolean:
      f(bool{});
      return true;
    default:
      return false;
  }
}

template <class T>
T load(std::span<const std::byte> host, std::uint64_t index) {
  if constexpr (std::is_same_v<T, bool>) {
    return host[index] != std::byte{0};  // any bit pattern may come from a file
  } else {
    T value;
    std::memcpy(&value, host.data() + index * sizeof(T), sizeof(T));
    return value;
  }
}

/// Forms whose device words are the host's bytes, the last word filled up with zeros.
bool same_bytes(DType dtype) { return is_half(dtype); }

std::uint64_t host_bytes(DType dtype, std::uint64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  return elements / info.block_elements * info.block_bytes;
}

template <class T>
constexpr bool kWide = std::is_integral_v<T> && sizeof(T) == 8;

}  // namespace

void check_device_form(const TensorType& type, std::span<const std::byte> host, std::string_view what) {
  const bool known =
      same_bytes(type.dtype) || is_quantized(type.dtype) || with_host_type(type.dtype, [&]<class T>(T) {
        if constexpr (kWide<T>) {
          using Narrow = std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>;
          for (std::uint64_t i = 0; i < host.size() / sizeof(T); ++i) {
            const T value = load<T>(host, i);
            if (value < T{std::numeric_limits<Narrow>::min()} || value > T{std::numeric_limits<Narrow>::max()}) {
              fail(ErrorCode::OutOfRange, "{}: element {} of {} is {}; the device keeps {} in 32 bits", what, i,
                   type.to_string(), value, dtype_name(type.dtype));
            }
          }
        }
      });
  if (!known)
    fail(ErrorCode::Unsupported, "{}: tensors of dtype {} have no device form yet", what, dtype_name(type.dtype));
}

void to_device(DType dtype, std::span<const std::byte> host, std::uint64_t first, std::uint64_t count,
               std::span<std::uint32_t> words) {
  if (count == 0) return;
  AESHNA_CHECK(words.size_bytes() == device_bytes(dtype, static_cast<std::int64_t>(count)));
  if (is_quantized(dtype)) {
    pack_blocks(dtype, host.subspan(host_bytes(dtype, first), host_bytes(dtype, count)), words);
    return;
  }
  if (same_bytes(dtype)) {
    words.back() = 0;
    std::memcpy(words.data(), host.data() + host_bytes(dtype, first), host_bytes(dtype, count));
    return;
  }
  const bool known = with_host_type(dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 4) {
      std::memcpy(words.data(), host.data() + first * 4, words.size_bytes());
    } else {
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(load<T>(host, first + i));
    }
  });
  AESHNA_CHECK(known);
}

void to_host(DType dtype, std::span<const std::uint32_t> words, std::uint64_t first, std::uint64_t count,
             std::span<std::byte> host) {
  if (count == 0) return;
  AESHNA_CHECK(words.size_bytes() == device_bytes(dtype, static_cast<std::int64_t>(count)));
  if (is_quantized(dtype)) {
    unpack_blocks(dtype, words, host.subspan(host_bytes(dtype, first), host_bytes(dtype, count)));
    return;
  }
  if (same_bytes(dtype)) {
    std::memcpy(host.data() + host_bytes(dtype, first), words.data(), host_bytes(dtype, count));
    return;
  }
  const bool known = with_host_type(dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 4) {
      std::memcpy(host.data() + first * 4, words.data(), words.size_bytes());
    } else if constexpr (std::is_same_v<T, bool>) {
      for (std::size_t i = 0; i < words.size(); ++i) host[first + i] = words[i] != 0 ? std::byte{1} : std::byte{0};
    } else {
      for (std::size_t i = 0; i < words.size(); ++i) {
        T value;
        if constexpr (std::is_signed_v<T>) {
          value = static_cast<T>(static_cast<std::int32_t>(words[i]));
        } else {
          value = static_cast<T>(words[i]);
        }
        std::memcpy(host.data() + (first + i) * sizeof(T), &value, sizeof(T));
      }
    }
  });
  AESHNA_CHECK(known);
}

}  // namespace aeshna
