#include "base/sha.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <vector>

#include "base/byte_reader.h"
#include "base/fail.h"

namespace aeshna {
namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// The block as the first 16 of the words that a hash expands it to.
void read_words(const std::byte* bytes, std::span<std::uint32_t> words) {
  for (std::size_t i = 0; i < 16; ++i) {
    words[i] = 0;
    for (std::size_t b = 0; b < 4; ++b) words[i] = words[i] << 8 | static_cast<std::uint32_t>(bytes[4 * i + b]);
  }
}

}  // namespace

Sha256::Sha256()
    : Sha({0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}) {}

void Sha256::block(const std::byte* bytes) {
  std::array<std::uint32_t, 64> w;
  read_words(bytes, w);
  const auto rotated = [](std::uint32_t x, int a, int b) { return std::rotr(x, a) ^ std::rotr(x, b); };
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = rotated(w[i - 15], 7, 18) ^ w[i - 15] >> 3,
                        s1 = rotated(w[i - 2], 17, 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3];
  std::uint32_t e = state_[4], f = state_[5], g = state_[6], h = state_[7];
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = rotated(e, 6, 11) ^ std::rotr(e, 25), choice = (e & f) ^ (~e & g);
    const std::uint32_t t1 = h + s1 + choice + kRound[i] + w[i];
    const std::uint32_t s0 = rotated(a, 2, 13) ^ std::rotr(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    h = g, g = f, f = e, e = d + t1;
    d = c, c = b, b = a, a = t1 + s0 + majority;
  }
  const std::array<std::uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

Sha1::Sha1() : Sha({0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}) {}

void Sha1::block(const std::byte* bytes) {
  std::array<std::uint32_t, 80> w;
  read_words(bytes, w);
  for (std::size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  std::uint32_t a = state_[0], b = state_[1], c = state_[2], d = state_[3], e = state_[4];
  for (std::size_t i = 0; i < 80; ++i) {
    std::uint32_t mixed = b ^ c ^ d, round = i < 40 ? 0x6ed9eba1 : 0xca62c1d6;
    if (i < 20) {
      mixed = (b & c) ^ (~b & d), round = 0x5a827999;
    } else if (i >= 40 && i < 60) {
      mixed = (b & c) ^ (b & d) ^ (c & d), round = 0x8f1bbcdc;
    }
    const std::uint32_t t = std::rotl(a, 5) + mixed + e + round + w[i];
    e = d, d = c, c = std::rotl(b, 30), b = a, a = t;
  }
  const std::array<std::uint32_t, 5> add = {a, b, c, d, e};
  for (std::size_t i = 0; i < 5; ++i) state_[i] += add[i];
}

Sha& Sha::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t filled = length_ % 64, taken = std::min(bytes.size(), 64 - filled);
    if (taken == 64) {
      block(bytes.data());
    } else {
      std::ranges::copy(bytes.first(taken), rest_ + filled);
      if (filled + taken == 64) block(rest_);
    }
    length_ += taken;
    bytes = bytes.subspan(taken);
  }
  return *this;
}

std::string Sha::hex() {
  const std::uint64_t bits = length_ * 8;
  std::vector<std::byte> end(1 + (119 - length_ % 64) % 64);  // up to 8 bytes before the end of a block
  end[0] = std::byte{0x80};
  for (int shift = 56; shift >= 0; shift -= 8) end.push_back(static_cast<std::byte>(bits >> shift));
  add(end);
  std::string text;
  for (const std::uint32_t word : state_) text += formatted("{:08x}", word);
  return text;
}

void add_file(Sha& hash, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    read_file(path, 0);  // says why
    fail(ErrorCode::Io, "{}: cannot be opened", path.string());
  }
  std::vector<std::byte> piece(1 << 20);
  while (file) {
    file.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    hash.add(std::span(piece).first(static_cast<std::size_t>(file.gcount())));
  }
  if (file.bad()) fail(ErrorCode::Io, "{}: cannot be read", path.string());
}

std::string sha256_file(const std::filesystem::path& path) {
  Sha256 hash;
  add_file(hash, path);
  return hash.hex();
}

}  // namespace aeshna
