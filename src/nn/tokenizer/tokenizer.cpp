#include "aeshna/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/fail.h"
#include "base/unicode.h"
#include "nn/tokenizer/vocabulary.h"

namespace aeshna {

std::optional<std::uint8_t> byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<std::uint8_t>(value);
}

namespace {

/// GPT-2's bytes_to_unicode: printable bytes of Latin-1 stand for themselves, the others are numbered from U+0100 on.
constexpr std::array<char16_t, 256> kByteLevel = [] {
  std::array<char16_t, 256> codes{};
  char16_t next = 0x100;
  for (std::size_t b = 0; b < codes.size(); ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    codes[b] = printable ? static_cast<char16_t>(b) : next++;
  }
  return codes;
}();

}  // namespace

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  static const auto table = [] {
    std::array<std::int16_t, 0x144> bytes{};
    bytes.fill(-1);
    for (std::size_t b = 0; b < kByteLevel.size(); ++b) bytes.at(kByteLevel[b]) = static_cast<std::int16_t>(b);
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Code c = utf8_at(text, at);
    if (!c.valid || c.code >= table.size() || table[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(table[c.code]);
    at += c.bytes;
  }
  return bytes;
}

std::string byte_level_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, kByteLevel[static_cast<unsigned char>(c)]);
  return text;
}

void add_known_ends(TokenizerSpec& spec) {
  static constexpr std::string_view known[] = {"<|eot_id|>", "<|eom_id|>",    "<|im_end|>",
                                               "<|end|>",    "<end_of_turn>", "<|endoftext|>"};
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (spec.tokens[i].kind == Token::Kind::Control &&
        std::ranges::find(known, spec.tokens[i].text) != std::end(known) &&
        std::ranges::find(spec.ends, id) == spec.ends.end()) {
      spec.ends.push_back(id);
    }
  }
}

// ---- Tokenizer

struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec s) : spec(std::move(s)), vocabulary(spec) {
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
      const Token& token = spec.tokens[i];
      ids.emplace(token.text, static_cast<std::int32_t>(i));
      if ((token.kind == Token::Kind::Control || token.kind == Token::Kind::Added) && !token.text.empty())
        added[static_cast<unsigned char>(token.text[0])].push_back(static_cast<std::int32_t>(i));
    }
    for (auto& bucket : added)
      std::ranges::stable_sort(bucket, std::ranges::greater(), [&](std::int32_t id) { return at(id).text.size(); });
  }

  const Token& at(std::int32_t id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= spec.tokens.size())
      fail(ErrorCode::OutOfRange, "{} is no token: {} has {}", id, spec.name, spec.tokens.size());
    return spec.tokens[static_cast<std::size_t>(id)];
  }

  /// The longest added token that the text has at `i`; -1: none. Control tokens must end by `special`.
  std::int32_t added_at(std::string_view text, std::size_t i, std::size_t special) const {
    for (const std::int32_t id : added[static_cast<unsigned char>(text[i])]) {
      const Token& token = at(id);
      if ((i + token.text.size() <= special || token.kind == Token::Kind::Added) &&
          text.substr(i).starts_with(token.text))
        return id;
    }
    return -1;
  }

  void encode_part(std::string_view part, bool first, std::vector<std::int32_t>& out) const {
    std::string text = spec.nfc ? to_nfc(part) : std::string(part);
    const bool prefixed =
        spec.prefix == TokenizerSpec::Prefix::Always || (spec.prefix == TokenizerSpec::Prefix::First && first);
    const bool there = text.starts_with(' ') || (spec.space_mark && text.starts_with(kSpaceMark));
    if (prefixed && !(spec.prefix_if_missing && there)) text.insert(0, " ");
    if (spec.space_mark) {
      std::string marked;
      for (const char c : text) {
        if (c == ' ') {
          marked += kSpaceMark;
        } else {
          marked += c;
        }
      }
      text = std::move(marked);
    }
    for (const std::string_view piece : split_text(text, spec.splits)) vocabulary.encode(piece, out);
  }

  std::string bytes(std::int32_t id) const {
    const Token& token = at(id);
    if (token.kind == Token::Kind::Byte) {
      if (const auto byte = byte_of_token(token.text)) return std::string(1, static_cast<char>(*byte));
    }
    if (!spec.space_mark || token.kind != Token::Kind::Normal) return token.text;
    std::string text;
    for (std::size_t i = 0; i < token.text.size();) {
      const bool mark = std::string_view(token.text).substr(i).starts_with(kSpaceMark);
      text += mark ? ' ' : token.text[i];
      i += mark ? kSpaceMark.size() : 1;
    }
    return text;
  }

  TokenizerSpec spec;
  Vocabulary vocabulary;
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::array<std::vector<std::int32_t>, 256> added;  ///< by first byte, the longest first
};

Tokenizer::Tokenizer(TokenizerSpec spec) : impl_(std::make_shared<Impl>(std::move(spec))) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextPart part{std::string(text), options.special};
  return encode(std::span(&part, 1), options.add_special);
}

std::vector<std::int32_t> Tokenizer::encode(std::span<const TextPart> parts, bool add_special) const {
  std::string text;
  std::vector<std::pair<std::size_t, bool>> ends;  // of the parts
  for (const TextPart& part : parts) {
    text += valid_utf8(part.text);
    ends.emplace_back(text.size(), part.special);
  }
  const TokenizerSpec& spec = impl_->spec;
  std::vector<std::int32_t> ids;
  if (add_special) ids = spec.before;
  const auto is_space = [&](std::size_t i) { return code_class(utf8_at(text, i).code) == CodeClass::Space; };
  std::size_t begin = 0;
  for (std::size_t i = 0, part = 0; i < text.size();) {
    while (ends[part].first <= i) ++part;
    const std::int32_t id = impl_->added_at(text, i, ends[part].second ? ends[part].first : 0);
    if (id < 0) {
      i += utf8_at(text, i).bytes;
      continue;
    }
    const Token& token = impl_->at(id);
    std::size_t end = i;
    if (token.strip_left) {
      const ScannedText scanned(std::string_view(text).substr(begin, i - begin));
      std::size_t n = scanned.codes.size();
      while (n > 0 && scanned.classes[n - 1] == CodeClass::Space) --n;
      end = begin + scanned.at[n];
    }
    if (end > begin) impl_->encode_part(std::string_view(text).substr(begin, end - begin), begin == 0, ids);
    ids.push_back(id);
    i += token.text.size();
    while (token.strip_right && i < text.size() && is_space(i)) i += utf8_at(text, i).bytes;
    begin = i;
  }
  if (begin < text.size()) impl_->encode_part(std::string_view(text).substr(begin), begin == 0, ids);
  if (add_special) ids.insert(ids.end(), spec.after.begin(), spec.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool special) const {
  TextStream stream(*this, special);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->spec.tokens.size()); }

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const auto found = impl_->ids.find(token);
  return found == impl_->ids.end() ? std::nullopt : std::optional(found->second);
}

std::string Tokenizer::bytes(std::int32_t id) const { return impl_->bytes(id); }
bool Tokenizer::is_control(std::int32_t id) const {
  const Token::Kind kind = impl_->at(id).kind;
  return kind == Token::Kind::Control || kind == Token::Kind::Unknown;
}
std::optional<std::int32_t> Tokenizer::bos() const { return impl_->spec.bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->spec.eos; }
std::span<const std::int32_t> Tokenizer::ends() const { return impl_->spec.ends; }

Tokenizer Tokenizer::with_ends(std::vector<std::int32_t> ends) const {
  TokenizerSpec spec = impl_->spec;
  for (const std::int32_t id : ends) (void)impl_->at(id);
  spec.ends = std::move(ends);
  return Tokenizer(std::move(spec));
}

// ---- TextStream

std::string TextStream::push(std::int32_t id) {
  if (tokenizer_.is_control(id) && !special_) return "";
  std::string bytes = tokenizer_.bytes(id);
  if (!started_ && tokenizer_.impl_->spec.strip_space && bytes.starts_with(' ')) bytes.erase(0, 1);
  started_ = true;
  pending_ += bytes;
  const std::size_t kept = incomplete_utf8(pending_);
  std::string text = valid_utf8(std::string_view(pending_).substr(0, pending_.size() - kept));
  pending_.erase(0, pending_.size() - kept);
  return text;
}

std::string TextStream::finish() {
  std::string text = valid_utf8(pending_);
  pending_.clear();
  started_ = false;
  return text;
}

}  // namespace aeshna
