#include "nn/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "base/fail.h"
#include "base/unicode.h"

namespace aeshna {

namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

/// Greedy merging: neighbours merge, the best pair first and of equal ones the leftmost. `merged(left, right)` gives the pair's
/// priority (the lowest is the best; nullopt: they do not merge), `join(left, right)` makes one symbol of two.
template <class Symbol, class Merged, class Join>
void merge_all(std::vector<Symbol>& symbols, Merged merged, Join join) {
  using Priority = typename decltype(merged(symbols[0], symbols[0]))::value_type;
  struct Link {
    std::size_t previous, next;
    std::uint32_t version = 0;  ///< counts the changes of a symbol, so that pairs of old ones are noticed
    bool alive = true;
  };
  constexpr std::size_t none = SIZE_MAX;
  std::vector<Link> links(symbols.size());
  for (std::size_t i = 0; i < links.size(); ++i)
    links[i] = {i == 0 ? none : i - 1, i + 1 == links.size() ? none : i + 1};
  using Candidate = std::tuple<Priority, std::size_t, std::size_t, std::uint32_t, std::uint32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (left == none || right == none) return;
    if (const auto priority = merged(symbols[left], symbols[right]))
      queue.emplace(*priority, left, right, links[left].version, links[right].version);
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const auto [priority, left, right, left_version, right_version] = queue.top();
    queue.pop();
    if (!links[left].alive || !links[right].alive || links[left].version != left_version ||
        links[right].version != right_version)
      continue;
    symbols[left] = join(symbols[left], symbols[right]);
    ++links[left].version;
    links[right].alive = false;
    links[left].next = links[right].next;
    if (links[left].next != none) links[links[left].next].previous = left;
    consider(links[left].previous, left);
    consider(left, links[left].next);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i)
    if (links[i].alive) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace

Vocabulary::Vocabulary(const TokenizerSpec& spec) : spec_(spec) {
  bytes_.fill(-1);
  double lowest = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    const Token& token = spec.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    if (token.kind == Token::Kind::Byte) {
      if (const auto byte = byte_of_token(token.text)) bytes_[*byte] = id;
    } else if (token.kind == Token::Kind::Normal) {
      ids_.emplace(token.text, id);
      longest_ = std::max(longest_, token.text.size());
      lowest = std::min(lowest, static_cast<double>(token.score));
    }
  }
  unknown_score_ = lowest - 10;  // SentencePiece's penalty
  // A merge may go through added tokens, which text cannot become otherwise.
  std::unordered_map<std::string_view, std::int32_t> all;
  if (!spec.merges.empty())
    for (std::size_t i = 0; i < spec.tokens.size(); ++i) all.emplace(spec.tokens[i].text, static_cast<std::int32_t>(i));
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    joined = left + right;
    const auto token = [&](std::string_view text) {
      const auto found = all.find(text);
      if (found == all.end())
        fail(ErrorCode::CorruptFile, "{}: merge {} makes or needs '{}', which is no token", spec.name, rank, text);
      return found->second;
    };
    merges_.try_emplace(pair_key(token(left), token(right)), Merge{static_cast<std::int32_t>(rank), token(joined)});
  }
}

std::int32_t Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

void Vocabulary::fall_back(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto known = [&](char c) { return bytes_[static_cast<unsigned char>(c)] >= 0; };
  if (spec_.byte_fallback && std::ranges::all_of(text, known)) {
    for (const char c : text) ids.push_back(bytes_[static_cast<unsigned char>(c)]);
  } else if (spec_.unknown && !(spec_.fuse_unknown && !ids.empty() && ids.back() == *spec_.unknown)) {
    ids.push_back(*spec_.unknown);
  }
}

void Vocabulary::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (spec_.whole_words) {
    if (const std::int32_t id = find(piece); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  switch (spec_.model) {
    case TokenizerSpec::Model::ByteBpe:
    case TokenizerSpec::Model::CharBpe:
      return ranked(piece, ids);
    case TokenizerSpec::Model::ScoredBpe:
      return scored(piece, ids);
    case TokenizerSpec::Model::Unigram:
      return unigram(piece, ids);
  }
}

void Vocabulary::ranked(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> symbols;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t bytes = spec_.model == TokenizerSpec::Model::ByteBpe ? 1 : utf8_at(piece, at).bytes;
    const std::string_view symbol = piece.substr(at, bytes);
    if (const std::int32_t id = find(symbol); id >= 0) {
      symbols.push_back(id);
    } else {
      fall_back(symbol, symbols);
    }
    at += bytes;
  }
  if (symbols.size() > 1) {
    merge_all(
        symbols,
        [&](std::int32_t left, std::int32_t right) -> std::optional<std::int32_t> {
          const auto found = merges_.find(pair_key(left, right));
          return found == merges_.end() ? std::nullopt : std::optional(found->second.rank);
        },
        [&](std::int32_t left, std::int32_t right) { return merges_.at(pair_key(left, right)).id; });
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void Vocabulary::scored(std::string_view piece, std::vector<std::int32_t>& ids) const {
  std::vector<std::string_view> symbols;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t bytes = utf8_at(piece, at).bytes;
    symbols.push_back(piece.substr(at, bytes));
    at += bytes;
  }
  // Neighbours lie beside each other in the piece, so two of them are one view.
  const auto both = [](std::string_view left, std::string_view right) {
    return std::string_view(left.data(), left.size() + right.size());
  };
  if (symbols.size() > 1) {
    merge_all(
        symbols,
        [&](std::string_view left, std::string_view right) -> std::optional<float> {
          const std::int32_t id = find(both(left, right));
          return id < 0 ? std::nullopt : std::optional(-spec_.tokens[static_cast<std::size_t>(id)].score);
        },
        both);
  }
  for (const std::string_view symbol : symbols) {
    if (const std::int32_t id = find(symbol); id >= 0) {
      ids.push_back(id);
    } else {
      fall_back(symbol, ids);
    }
  }
}

void Vocabulary::unigram(std::string_view piece, std::vector<std::int32_t>& ids) const {
  // Viterbi: the best cut of each start of the piece. Of equal ones the one whose last token starts first.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t from = 0;
    std::int32_t id = -1;  ///< -1: one character that is no token
  };
  std::vector<Best> best(piece.size() + 1);
  best[0].score = 0;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t character = utf8_at(piece, at).bytes;
    const auto offer = [&](std::size_t bytes, double score, std::int32_t id) {
      Best& there = best[at + bytes];
      if (best[at].score + score > there.score) there = {best[at].score + score, at, id};
    };
    bool single = false;
    for (std::size_t end = at; end < piece.size() && end - at < longest_;) {
      end += utf8_at(piece, end).bytes;
      const std::int32_t id = find(piece.substr(at, end - at));
      if (id < 0) continue;
      offer(end - at, static_cast<double>(spec_.tokens[static_cast<std::size_t>(id)].score), id);
      single |= end - at == character;
    }
    if (!single) offer(character, unknown_score_, -1);
    at += character;
  }
  std::vector<std::pair<std::string_view, std::int32_t>> cuts;
  for (std::size_t end = piece.size(); end > 0; end = best[end].from)
    cuts.emplace_back(piece.substr(best[end].from, end - best[end].from), best[end].id);
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (cut->second >= 0) {
      ids.push_back(cut->second);
    } else {
      fall_back(cut->first, ids);
    }
  }
}

}  // namespace aeshna
