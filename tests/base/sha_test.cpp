// SHA-256 and SHA-1 against published values; git's name of a file.
#include "base/sha.h"

#include <gtest/gtest.h>

#include <string>

namespace aeshna {
namespace {

template <class Hash>
std::string of(std::string_view text, std::size_t piece = 1 << 20) {
  Hash hash;
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    hash.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  return hash.hex();
}

const std::string kTwoBlocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

TEST(Sha, PublishedValues) {  // FIPS 180's examples
  EXPECT_EQ(of<Sha256>(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of<Sha256>("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of<Sha256>(kTwoBlocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(of<Sha256>(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(of<Sha1>(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  EXPECT_EQ(of<Sha1>("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(of<Sha1>(kTwoBlocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
  EXPECT_EQ(of<Sha1>(std::string(1'000'000, 'a')), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(of<Sha1>(std::string("blob 0") + '\0'), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git's empty file
}

TEST(Sha, DoNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t length : {55u, 56u, 63u, 64u, 65u, 119u, 120u, 300u}) {
    for (const std::size_t piece : {1u, 13u, 64u}) {
      EXPECT_EQ(of<Sha256>(text.substr(0, length), piece), of<Sha256>(text.substr(0, length)));
      EXPECT_EQ(of<Sha1>(text.substr(0, length), piece), of<Sha1>(text.substr(0, length)));
    }
  }
}

}  // namespace
}  // namespace aeshna
