// The targets of target.h in the test program: every file of the corpus, cut off at every byte, and mutations of them. The long suite does
// 100,000 of each format; scripts/fuzz.sh runs the same targets under libFuzzer, which looks for paths that were not taken yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "base/byte_reader.h"
#include "base/format.h"
#include "fuzz/mutate.h"
#include "fuzz/seeds.h"
#include "fuzz/target.h"
#include "support/memory.h"
#include "support/onnx_suite.h"
#include "support/temp_dir.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace aeshna::fuzz {

void PrintTo(const Target* target, std::ostream* out) { *out << target->name; }

namespace {

namespace fs = std::filesystem;

const fs::path kHere = fs::path(AESHNA_SOURCE_DIR) / "tests/fuzz";

std::string file_text(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path);
  return std::string(text_of(bytes));
}

/// By file name.
std::map<std::string, std::string> corpus(const Target& target) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(kHere / "corpus" / target.name))
    files.emplace(entry.path().filename().string(), file_text(entry.path()));
  return files;
}

// ---- an input that fails is kept

std::string current_target, current_input;

std::string keep() {
  const fs::path path = fs::temp_directory_path() /
                        formatted("aeshna-fuzz-{}-{:016x}", current_target, std::hash<std::string>{}(current_input));
  std::ofstream(path, std::ios::binary) << current_input;
  return path.string();
}

#if defined(__SANITIZE_ADDRESS__)
void keep_at_death() { std::fprintf(stderr, "the input is in %s\n", keep().c_str()); }
#endif

/// Whether the input was accepted; a violation fails the test.
Verdict check(const Target& target, const std::string& input, std::string* error = nullptr) {
#if defined(__SANITIZE_ADDRESS__)
  [[maybe_unused]] static const bool set = (__sanitizer_set_death_callback(keep_at_death), true);
#endif
  current_target = target.name;
  current_input = input;
  try {
    return run(target, std::as_bytes(std::span(input)), error);
  } catch (const Violation& violation) {
    ADD_FAILURE() << target.name << ": " << violation.what() << "\nthe input is in " << keep();
    return Verdict::Refused;
  }
}

void mutate(const Target& target, std::uint64_t seed, int rounds) {
  std::vector<std::string> seeds;
  for (const auto& [name, text] : corpus(target)) seeds.push_back(text);
  if (target.name == "onnx" && !test::onnx_suite_root().empty()) {  // small models of every op
    const std::vector<test::OnnxCase> cases = test::onnx_suite("node");
    for (std::size_t i = seed % 7; i < cases.size(); i += 7) {
      std::string file = file_text(cases[i].model);
      if (file.size() < 20000) seeds.push_back(std::move(file));
    }
  }
  Mutator mutator(seeds, read_dictionary(kHere / "dictionaries" / (std::string(target.name) + ".dict")), seed);
  int accepted = 0;
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i)
    accepted += check(target, mutator.next()) == Verdict::Accepted ? 1 : 0;
  if (testing::Test::HasFailure()) return;
  // Enough go all the way, and enough do not.
  EXPECT_GT(accepted, rounds / 100);
  EXPECT_GT(rounds - accepted, rounds / 100);
  testing::Test::RecordProperty("accepted", accepted);
}

std::vector<const Target*> all_targets() {
  std::vector<const Target*> all;
  for (const Target& target : targets()) all.push_back(&target);
  return all;
}
std::string target_name(const testing::TestParamInfo<const Target*>& info) { return std::string(info.param->name); }

class Fuzz : public testing::TestWithParam<const Target*> {};
INSTANTIATE_TEST_SUITE_P(Formats, Fuzz, testing::ValuesIn(all_targets()), target_name);

/// AESHNA_TEST_UPDATE_CORPUS=1 writes the files anew. Others in the folder are inputs that once failed.
TEST_P(Fuzz, TheCorpusIsWhatTheWritersMake) {
  const auto made = seeds(GetParam()->name);
  const fs::path folder = kHere / "corpus" / GetParam()->name;
  if (std::getenv("AESHNA_TEST_UPDATE_CORPUS") != nullptr) {
    fs::create_directories(folder);
    for (const auto& [name, text] : made) std::ofstream(folder / name, std::ios::binary) << text;
  }
  const auto committed = corpus(*GetParam());
  for (const auto& [name, text] : committed) check(*GetParam(), text);
  for (const auto& [name, text] : made) {
    ASSERT_TRUE(committed.contains(name)) << name;
    EXPECT_EQ(committed.at(name), text) << name;
    std::string error;
    const bool sound = name != "outside" && name != "link";  // what these want is refused
    EXPECT_EQ(check(*GetParam(), text, &error) == Verdict::Accepted, sound) << name << ": " << error;
  }
}

TEST_P(Fuzz, CutOffAtEveryByte) {
  for (const auto& [name, text] : corpus(*GetParam())) {
    SCOPED_TRACE(name);
    for (std::size_t size = 0; size <= text.size() && !HasFailure(); ++size) check(*GetParam(), text.substr(0, size));
  }
}

TEST_P(Fuzz, TwoThousandMutations) { mutate(*GetParam(), 1, 2000); }

constexpr int kPieces = 4;  ///< of the long run, which CTest runs side by side
class LongFuzz : public testing::TestWithParam<std::tuple<const Target*, int>> {};
TEST_P(LongFuzz, Mutations) {
  const auto [target, piece] = GetParam();
  mutate(*target, static_cast<std::uint64_t>(100 + piece), 100'000 / kPieces);
}
INSTANTIATE_TEST_SUITE_P(LongFormats, LongFuzz,
                         testing::Combine(testing::ValuesIn(all_targets()), testing::Range(0, kPieces)),
                         [](const auto& info) {
                           return formatted("{}_{}", std::get<0>(info.param)->name, std::get<1>(info.param));
                         });

// ---- the harness itself

std::string violation_of(void (*read)(Bytes), std::string_view named = "") {
  const Target target{"planted", read, named};
  try {
    run(target, {});
  } catch (const Violation& violation) {
    return violation.what();
  }
  return "none";
}

TEST(FuzzHarness, FindsWhatMustNotBe) {
  EXPECT_EQ(violation_of([](Bytes) {}), "none");
  EXPECT_EQ(violation_of([](Bytes) { throw Error(ErrorCode::CorruptFile, "a.x: bad"); }, "a.x"), "none");
  EXPECT_EQ(violation_of([](Bytes) { throw Error(ErrorCode::CorruptFile, "bad"); }, "a.x"),
            "a message without 'a.x': bad");
  EXPECT_EQ(violation_of([](Bytes) { throw Error(ErrorCode::Internal, "oh"); }), "an internal error: oh");
  EXPECT_EQ(violation_of([](Bytes) { throw std::out_of_range("at"); }), "an exception that is no Error: at");
  EXPECT_EQ(violation_of([](Bytes) { throw std::bad_alloc(); }), "more memory than there is");
  EXPECT_EQ(violation_of([](Bytes) { require(false, "what was read differs"); }), "what was read differs");
  const std::string memory = violation_of([](Bytes) {
    for (int i = 0; i < 2; ++i) (void)std::vector<char>(40u << 20);  // one after the other: no 80 MiB at once
    std::vector<std::vector<char>> all(3, std::vector<char>(30u << 20));
    require(all[2].back() == 0, "");
  });
  const test::MemoryWatch watch;
  const auto probe = std::make_unique<std::array<char, 1000>>();
  if (watch.peak() == 0) GTEST_SKIP() << "this build does not count memory";
  EXPECT_TRUE(memory.ends_with("bytes of memory for an input of 0")) << memory;
}

TEST(FuzzHarness, MutationsAreTheSameForASeedAndDiffer) {
  const std::vector<std::string> from = {"{\"shape\": [12, 3]}", std::string("\1\2\3\4\5\6\7\0", 8)};
  Mutator a(from, {"word"}, 5), b(from, {"word"}, 5), c(from, {"word"}, 6);
  std::set<std::string> seen;
  std::size_t same_length = 0;
  bool other_seed_differs = false;
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::string text = a.next();
    EXPECT_EQ(text, b.next());
    other_seed_differs |= text != c.next();
    seen.insert(text);
    same_length += text.size() == from[i % 2].size();
  }
  EXPECT_TRUE(other_seed_differs);
  EXPECT_GT(seen.size(), 800u);
  EXPECT_GT(same_length, 300u);
  EXPECT_LT(same_length, 800u);
  const auto some = [&](std::string_view part) {
    return std::ranges::any_of(seen, [&](const std::string& text) { return text.contains(part); });
  };
  for (const char* part : {"word", "9223372036854775807", "-1"}) EXPECT_TRUE(some(part)) << part;
}

}  // namespace
}  // namespace aeshna::fuzz
