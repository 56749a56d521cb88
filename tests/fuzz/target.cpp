#include "fuzz/target.h"

#include <array>
#include <ctime>
#include <fstream>
#include <new>
#include <random>

#include "aeshna/error.h"
#include "base/format.h"
#include "support/memory.h"

namespace aeshna::fuzz {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMemory = 64u << 20, kMemoryPerByte = 64;
constexpr double kSeconds = 10;

/// Of this thread: what other processes take does not count.
double processor_seconds() {
#ifdef __unix__
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
#else
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
#endif
}

void write(const fs::path& path, Bytes bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(static_cast<bool>(file.flush()), "the harness cannot write " + path.string());
}

/// All folders of this process lie in one, which goes with it.
const fs::path& root() {
  struct Root {
    Root() {
      const std::string name = formatted("aeshna-fuzz-{:08x}", std::random_device{}());
      for (const fs::path& where : {fs::path("/dev/shm"), fs::temp_directory_path()}) {
        std::error_code error;
        if (!fs::is_directory(where, error)) continue;
        path = where / name;
        if (fs::create_directory(path, error)) return;
      }
      throw Violation("the harness has no folder for its files");
    }
    ~Root() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  };
  static const Root root;
  return root.path;
}

constexpr std::array<Target, 11> kTargets = {{{"chat", read_chat_template, ""},
                                              {"checkpoint", read_checkpoint_file, "fuzz.safetensors"},
                                              {"data", read_data_files, "fuzz.data"},
                                              {"gguf", read_gguf, "fuzz.gguf"},
                                              {"graph", read_graph_text, "line "},
                                              {"hugging_face", read_hugging_face, "fuzz_model"},
                                              {"nnef", read_nnef, ""},
                                              {"npy", read_npy_file, "fuzz.npy"},
                                              {"onnx", read_onnx, ""},
                                              {"safetensors", read_safetensors, "fuzz.safetensors"},
                                              {"tokenizer", read_tokenizer_json, "fuzz.json"}}};

}  // namespace

std::span<const Target> targets() { return kTargets; }

Verdict run(const Target& target, Bytes input, std::string* error) {
  Verdict verdict = Verdict::Accepted;
  const double start = processor_seconds();
  std::size_t peak = 0;
  try {
    const test::MemoryWatch watch;
    try {
      target.read(input);
    } catch (const Error& e) {
      verdict = Verdict::Refused;
      const std::string message = e.what();
      require(e.code() != ErrorCode::Internal, "an internal error: " + message);
      require(message.contains(target.named), formatted("a message without '{}': {}", target.named, message));
      if (error != nullptr) *error = message;
    } catch (const std::bad_alloc&) {
      throw Violation("more memory than there is");
    }
    peak = watch.peak();
  } catch (const Violation&) {
    throw;
  } catch (const std::exception& e) {
    throw Violation(formatted("an exception that is no Error: {}", e.what()));
  }
  const std::size_t bound = kMemory + kMemoryPerByte * input.size();
  require(peak <= bound, formatted("{} bytes of memory for an input of {}", peak, input.size()));
  const double seconds = processor_seconds() - start;
  require(seconds <= kSeconds, formatted("{:.1f} s for an input of {} bytes", seconds, input.size()));
  return verdict;
}

std::vector<Bytes> parts_of(Bytes input) {
  constexpr std::string_view separator = "\n~~~~\n";
  std::vector<Bytes> parts;
  std::string_view text = text_of(input);
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = text.find(separator, begin)) != std::string_view::npos; begin = at + separator.size())
    parts.push_back(input.subspan(begin, at - begin));
  parts.push_back(input.subspan(begin));
  return parts;
}

Folder::Folder(std::string name) : path_(root() / "folders" / name) {
  fs::create_directories(path_);
  std::string outside;
  while (outside.size() < 4096) outside += kSecret;
  write(path_.parent_path() / "outside.bin", std::as_bytes(std::span(outside)));
}
void Folder::put(std::string_view file, Bytes bytes) const { write(path_ / file, bytes); }
void Folder::remove(std::string_view file) const { fs::remove(path_ / file); }

}  // namespace aeshna::fuzz
