#pragma once
// A model's configuration, of which every field is understood or refused.
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/nn.h"
#include "base/format.h"
#include "io/json_field.h"

namespace aeshna::pretrained {

class Config {
 public:
  /// Error(CorruptFile, NotFound or Io) naming the file.
  explicit Config(const std::filesystem::path& file);
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  const std::string& source() const { return top_.source(); }
  bool has(std::string_view key) const { return top_.has(key); }
  // Of a field, which then counts as understood. Errors name it: CorruptFile for a value of another kind.
  std::string text(std::string_view key, std::string_view fallback);
  bool flag(std::string_view key, bool fallback);
  double number(std::string_view key, double fallback);
  std::int64_t size(std::string_view key,
                    std::int64_t fallback = 0);  ///< 1 to 2^20; without a fallback it must be there
  std::vector<std::int64_t> sizes(std::string_view key, std::vector<std::int64_t> fallback);
  /// A size, or two: height and width.
  std::pair<std::int64_t, std::int64_t> height_and_width(std::string_view key, std::int64_t fallback);
  /// "gelu" and its kin; what is none of them is refused.
  nn::Activation activation(std::string_view key, std::string_view fallback);
  /// Elements of an object or array; 0 if it is absent.
  std::size_t count(std::string_view key);
  JsonField field(std::string_view key);

  /// Notes something that the model needs and Aeshna lacks.
  void refuse(std::string what) { refused_.push_back(std::move(what)); }
  /// A field that must have this value, if it is there.
  void require(std::string_view key, bool wanted);
  /// Fields that change nothing of what is computed here. "decoder_*": all that begin so.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Error(Unsupported) with all that was refused and all fields that nobody understood.
  void finish() const;

 private:
  bool take(std::string_view key);  ///< counts as understood from now on; whether it is there
  bool is_known(std::string_view key) const;
  nlohmann::json json_;
  JsonField top_;
  std::vector<std::string> known_, refused_;
};

/// Fields of transformers' configurations that are the same for all models and say nothing of what is computed.
void ignore_common_fields(Config& config);

}  // namespace aeshna::pretrained
