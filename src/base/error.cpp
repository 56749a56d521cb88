#include "aeshna/error.h"

#include <utility>

#include "base/fail.h"

namespace aeshna {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument: return "invalid argument";
    case ErrorCode::ShapeMismatch: return "shape mismatch";
    case ErrorCode::DTypeMismatch: return "dtype mismatch";
    case ErrorCode::NotFound: return "not found";
    case ErrorCode::Unsupported: return "unsupported";
    case ErrorCode::LimitExceeded: return "limit exceeded";
    case ErrorCode::NoDevice: return "no device";
    case ErrorCode::DeviceLost: return "device lost";
    case ErrorCode::OutOfMemory: return "out of memory";
    case ErrorCode::CorruptFile: return "corrupt file";
    case ErrorCode::Io: return "input/output error";
    case ErrorCode::NonFinite: return "non-finite value";
    case ErrorCode::OutOfRange: return "out of range";
    case ErrorCode::Internal: return "internal error";
  }
  return "unknown error";
}

namespace {

/// what() ends at a NUL, and terminals obey other control characters: names out of a file may hold either.
std::string printable(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\0') {
      shown += "\\0";
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) {
      constexpr std::string_view digits = "0123456789abcdef";
      shown += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

Error::Error(ErrorCode code, std::string message)
    : code_(code), message_(std::move(message)), what_(printable(message_)) {}

Error& Error::context(std::string line) {
  what_ += "\n  in " + printable(line);
  contexts_.push_back(std::move(line));
  return *this;
}

void internal_error(const char* condition, std::source_location where) {
  fail(ErrorCode::Internal, "internal error: '{}' does not hold at {}:{} (a bug in Aeshna)", condition, where.file_name(),
       where.line());
}

}  // namespace aeshna
