#pragma once
#include <cstdint>
#include <vector>

#include "serve/engine.h"
#include "serve/request.h"

namespace aeshna::serve {

/// What a request's prompts are for its model.
struct PromptIds {
  std::vector<std::int32_t> ids;
  std::string text;  ///< only where the answer repeats it ("echo")
};

/// Knows a model's tokens and checks prompts against it, without cutting texts into tokens that cannot fit anyway.
class Prompts {
 public:
  explicit Prompts(const ServedModel& model);
  /// One for each prompt of the request. Throws ApiError (400) that names the field: no chat format or one that cannot express the
  /// conversation, an id outside the vocabulary, an empty prompt, one that leaves no room in the context ("context_length_exceeded").
  std::vector<PromptIds> of(const ApiRequest& request) const;

 private:
  PromptIds of_chat(const ApiRequest& request) const;
  PromptIds of_text(const Prompt& prompt, const std::string& param, bool echo) const;
  void check_bytes(std::size_t bytes, const std::string& param) const;
  void check_length(std::size_t tokens, const std::string& param) const;

  const ServedModel& model_;
  std::size_t longest_token_ = 1;  ///< bytes
};

}  // namespace aeshna::serve
