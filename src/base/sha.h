#pragma once
// SHA-256 and SHA-1 (FIPS 180-4), by which files are known: results name the data that they were measured with, a hub lists what it holds. SHA-1
// is git's name of a file and guards against accident, not against an attacker.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace aeshna {

/// What the two share: a state of words that blocks of 64 bytes change, and an end that holds the length.
class Sha {
 public:
  virtual ~Sha() = default;
  Sha& add(std::span<const std::byte> bytes);
  /// The words of the state, eight digits each. Nothing may be added afterwards.
  std::string hex();

 protected:
  explicit Sha(std::initializer_list<std::uint32_t> state) : state_(state) {}
  virtual void block(const std::byte* bytes) = 0;
  std::vector<std::uint32_t> state_;

 private:
  std::byte rest_[64] = {};
  std::uint64_t length_ = 0;
};

class Sha256 : public Sha {
 public:
  Sha256();

 private:
  void block(const std::byte* bytes) override;
};

class Sha1 : public Sha {
 public:
  Sha1();

 private:
  void block(const std::byte* bytes) override;
};

/// SHA-256 of a whole file, which is read in pieces. Error(NotFound or Io) names it.
std::string sha256_file(const std::filesystem::path& path);
/// Adds the bytes of a file.
void add_file(Sha& hash, const std::filesystem::path& path);

}  // namespace aeshna
