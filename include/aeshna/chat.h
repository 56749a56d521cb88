#pragma once
// Conversations as the text that a model was trained on.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/tokenizer.h"

namespace aeshna {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// A known family of chat formats, recognised from the template that came with a model. Templates are programs (in Jinja); they are not run.
/// Which family it is, and what varies within it, is read off the template's text.
class ChatTemplate {
 public:
  enum class Family : std::uint8_t { ChatMl, Llama3, Gemma, Mistral, Phi3 };

  /// Error(Unsupported) for the template of another family.
  static ChatTemplate recognise(std::string_view jinja);

  Family family() const { return family_; }
  std::string_view name() const;
  /// The conversation, and with `answer` the opening of the assistant's turn. Only what the format adds may become control tokens, never
  /// what a message holds: tokenizer.encode(parts, false). Errors: InvalidArgument for an unknown role, for turns that the format cannot
  /// express, and for a tokenizer without the tokens that it needs.
  std::vector<TextPart> render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                               bool answer = true) const;

 private:
  enum class System : std::uint8_t { Turn, None, FirstUser, LastUser };
  Family family_ = Family::ChatMl;
  bool begins_ = false;  ///< with bos
  bool dated_ = false;   ///< Llama 3.1 and later: the system turn names dates
  System system_ = System::Turn;
  std::string default_system_;                               ///< ChatMl: when the conversation has none
  std::string open_, close_, before_answer_, after_answer_;  ///< Mistral
};

}  // namespace aeshna
