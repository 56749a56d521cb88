#pragma once
#include <exception>
#include <string>
#include <vector>

namespace aeshna {

/// What kind of thing went wrong. Stable: programs may branch on it.
enum class ErrorCode {
  InvalidArgument,  ///< a call that no device and no file could make right
  ShapeMismatch,
  DTypeMismatch,
  NotFound,       ///< no such name, file, device, tensor
  Unsupported,    ///< well-formed, but this build or device cannot do it
  LimitExceeded,  ///< a device limit or a checked arithmetic bound, named in the message
  NoDevice,       ///< no loader, no driver, or no device that matches the request
  DeviceLost,
  OutOfMemory,
  CorruptFile,
  Io,           ///< the operating system refused: full disk, permissions, missing directory
  NonFinite,    ///< a loss or gradient norm that is NaN or infinite
  OutOfRange,   ///< an index outside its tensor, a value outside its storage type
  Internal,     ///< a bug in Aeshna
};

/// Name of a code, as printed in messages ("shape mismatch").
const char* error_code_name(ErrorCode code);

/// The one exception type of the public API: a code, a message, and the chain of contexts through
/// which it travelled (innermost first), such as the op, the builder line, the file.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  /// Adds an outer context and returns *this, so that a handler can write `throw e.context("...")`.
  Error& context(std::string line);
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::vector<std::string>& contexts() const noexcept { return contexts_; }
  /// "<message>\n  in <context>\n  in <context>..."
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
  std::vector<std::string> contexts_;
  std::string what_;
};

}  // namespace aeshna
