#pragma once
// The small tokenizers that make.mjs made.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/byte_reader.h"
#include "io/gguf.h"

namespace aeshna::test {

inline const std::filesystem::path kFixtures = std::filesystem::path(AESHNA_SOURCE_DIR) / "tests/nn/tokenizers";

inline nlohmann::json fixture(const std::string& name) {
  const auto bytes = read_file(kFixtures / (name + ".json"));
  return nlohmann::json::parse(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// What a GGUF file of the same tokenizer holds.
inline GgufMetadata gguf_of(const std::string& name, const std::string& pre) {
  const nlohmann::json data = fixture(name);
  std::vector<std::string> tokens(data["model"]["vocab"].size());
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (const auto& item : data["model"]["vocab"].items()) tokens[item.value().get<std::size_t>()] = item.key();
  for (const nlohmann::json& token : data["added_tokens"]) {
    const auto id = token["id"].get<std::size_t>();
    if (id >= tokens.size()) tokens.resize(id + 1), types.resize(id + 1);
    tokens[id] = token["content"].get<std::string>();
    types[id] = token["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> merges;
  for (const nlohmann::json& merge : data["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return {{"tokenizer.ggml.model", GgufValue::text("gpt2")},
          {"tokenizer.ggml.pre", GgufValue::text(pre)},
          {"tokenizer.ggml.tokens", GgufValue::texts(tokens)},
          {"tokenizer.ggml.token_type", GgufValue::ints(types)},
          {"tokenizer.ggml.merges", GgufValue::texts(merges)},
          {"tokenizer.ggml.bos_token_id", GgufValue::integer(static_cast<std::uint32_t>(tokens.size() - 4))},
          {"tokenizer.ggml.eos_token_id", GgufValue::integer(static_cast<std::uint32_t>(tokens.size() - 2))},
          {"tokenizer.ggml.add_bos_token", GgufValue::flag(name == "llama3")},
          {"tokenizer.ggml.add_eos_token", GgufValue::flag(name == "llama3")}};
}

}  // namespace aeshna::test
