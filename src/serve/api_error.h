#pragma once
#include <exception>
#include <string>
#include <utility>

#include "base/format.h"

namespace aeshna::serve {

/// A refusal as a client gets it: an HTTP status, and what OpenAI's error object says.
class ApiError : public std::exception {
 public:
  ApiError(int status_, std::string message_, std::string param_ = {}, std::string code_ = {})
      : status(status_), message(std::move(message_)), param(std::move(param_)), code(std::move(code_)) {}
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  std::string message;
  std::string param;  ///< the field at fault: "messages[0].role"; empty: none
  std::string code;   ///< for programs: "context_length_exceeded"; empty: none
};

/// throw ApiError(400, formatted message, param)
template <class... Args>
[[noreturn]] void refuse(std::string param, std::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, formatted(format, std::forward<Args>(args)...), std::move(param), "invalid_value");
}

}  // namespace aeshna::serve
