#pragma once
#include "nn/tokenizer/spec.h"

namespace aeshna::test {

/// Single bytes, and the control tokens of ChatML.
inline Tokenizer letters() {
  TokenizerSpec spec;
  spec.name = "letters";
  for (int b = 0; b < 256; ++b) spec.tokens.push_back({.text = std::string(1, static_cast<char>(b))});
  for (const char* text : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"})
    spec.tokens.push_back({.text = text, .kind = Token::Kind::Control});
  spec.bos = 256;
  spec.eos = 257;
  return Tokenizer(spec);
}

}  // namespace aeshna::test
