#pragma once
// What is fuzzed: for each format one function that reads a hostile input as the program would. libFuzzer calls them (libfuzzer.cpp), and
// so do the tests (fuzz_test.cpp), with their own mutations.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "aeshna/error.h"

namespace aeshna::fuzz {

using Bytes = std::span<const std::byte>;
inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// What no input may cause: anything but an Error that names the file, a file that reads differently once it was written, too much
/// memory or time.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Violation(what);
}

struct Target {
  std::string_view name;
  /// Reads the input; throws the Error of the parser, or a Violation.
  void (*read)(Bytes);
  std::string_view named;  ///< what every Error's message must have in it; empty: nothing
};

/// All of them, by name.
std::span<const Target> targets();

enum class Verdict : bool { Refused, Accepted };
/// One input within the bounds: at most 64 MiB + 64 x its size of memory at once (where it is counted: support/memory.h), and 10 s of processor time.
/// Throws a Violation for what must not be. `error`, if given, gets the Error's message.
Verdict run(const Target& target, Bytes input, std::string* error = nullptr);

// ---- for the targets

/// Inputs of several files: the parts between lines "~~~~", in the order that the target knows.
std::vector<Bytes> parts_of(Bytes input);

/// A folder of this process's own, in memory if there is such a place. "outside.bin" lies beside it and is never to be read.
class Folder {
 public:
  explicit Folder(std::string name);
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view file) const { return path_ / file; }
  void put(std::string_view file, Bytes bytes) const;
  void remove(std::string_view file) const;

 private:
  std::filesystem::path path_;
};
/// Bytes of outside.bin, again and again.
inline constexpr std::string_view kSecret = "!Aeshna never reads this file!!\n";

/// Several readers of one input, which is refused if all of them refuse it.
class Attempts {
 public:
  template <class F>
  void attempt(F&& read) {
    try {
      read();
      accepted_ = true;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::Internal) throw;
      refused_ = e;
    }
  }
  /// Throws the last refusal if nothing was accepted.
  void finish() const {
    if (!accepted_ && refused_) throw Error(*refused_);
  }

 private:
  bool accepted_ = false;
  std::optional<Error> refused_;
};

// The targets.
void read_safetensors(Bytes);
void read_gguf(Bytes);  ///< with tokenizer and language model
void read_npy_file(Bytes);
void read_checkpoint_file(Bytes);
void read_data_files(Bytes);  ///< parts: gzip, idx or csv; labels
void read_onnx(Bytes);        ///< parts: model.onnx, w.bin
void read_nnef(Bytes);        ///< parts: graph.nnef, a.dat, b.dat
void read_graph_text(Bytes);
void read_tokenizer_json(Bytes);  ///< parts: tokenizer.json, a text
void read_hugging_face(
    Bytes);  ///< parts: config.json, model.safetensors.index.json, tokenizer_config.json, generation_config.json
void read_chat_template(Bytes);  ///< parts: template, messages of user and assistant in turn

}  // namespace aeshna::fuzz
