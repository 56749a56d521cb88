// llama.cpp beside bench_decode: time per token and for a prompt of 512, through the C API of a libllama that is opened at run time.
//   llama_cpp_bench LIBRARIES MODEL [CONTEXT]
// LIBRARIES: a folder with libllama*.so and libggml*.so (such as the package @node-llama-cpp/linux-x64-vulkan has); MODEL: of make_model.py.
//
// Its headers are not at hand here, so structures that it passes by value are opaque: on x86-64 and AArch64 a larger one in memory has the same
// beginning at the same place. Only the first fields of llama_context_params are touched, and checked against their documented defaults before.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

struct Opaque {
  alignas(16) unsigned char bytes[512];
};

void* open_library(const std::filesystem::path& folder, const std::string& start) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start) || name.find(".so") == std::string::npos) continue;
    if (void* library = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  std::fprintf(stderr, "no %s*.so in %s\n", start.c_str(), folder.c_str());
  std::exit(1);
}

template <typename F>
F* function(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no function %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<F*>(found);
}

double milliseconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: llama_cpp_bench LIBRARIES MODEL [CONTEXT]\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const int context = argc > 3 ? std::atoi(argv[3]) : 512;
  if (context < 64 || context > 4096) {
    std::fprintf(stderr, "a context from 64 to 4096, please\n");
    return 2;
  }
  for (const char* base : {"libggml-base", "libggml."}) open_library(folder, base);
  void* ggml = open_library(folder, "libggml.");
  void* llama = open_library(folder, "libllama.");
  function<void(const char*)>(ggml, "ggml_backend_load_all_from_path")(folder.c_str());
  function<void()>(llama, "llama_backend_init")();
  const Opaque model_params = function<Opaque()>(llama, "llama_model_default_params")();
  void* model = function<void*(const char*, Opaque)>(llama, "llama_model_load_from_file")(argv[2], model_params);
  if (model == nullptr) return 1;
  Opaque params = function<Opaque()>(llama, "llama_context_default_params")();
  std::uint32_t first[3];  // n_ctx, n_batch, n_ubatch
  std::memcpy(first, params.bytes, sizeof first);
  if (first[0] != 512 || first[1] != 2048 || first[2] != 512) {
    std::fprintf(stderr, "llama_context_params begins with %u, %u, %u, not 512, 2048, 512: another version\n", first[0],
                 first[1], first[2]);
    return 1;
  }
  first[0] = static_cast<std::uint32_t>(context) * 2;
  std::memcpy(params.bytes, first, sizeof first);
  void* session = function<void*(void*, Opaque)>(llama, "llama_init_from_model")(model, params);
  if (session == nullptr) return 1;
  const void* words = function<const void*(const void*)>(llama, "llama_model_get_vocab")(model);
  const std::int32_t vocab = function<std::int32_t(const void*)>(llama, "llama_vocab_n_tokens")(words);
  const auto batch = function<Opaque(std::int32_t*, std::int32_t)>(llama, "llama_batch_get_one");
  const auto decode = function<int(void*, Opaque)>(llama, "llama_decode");
  const auto wait = function<void(void*)>(llama, "llama_synchronize");
  const auto logits = function<float*(void*)>(llama, "llama_get_logits");
  void* memory = function<void*(void*)>(llama, "llama_get_memory")(session);
  const auto clear = function<void(void*, bool)>(llama, "llama_memory_clear");

  std::vector<std::int32_t> prompt(static_cast<std::size_t>(context));
  for (std::size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab));
  std::vector<double> prefill, tokens, greedy;
  for (int repeat = 0; repeat < 6; ++repeat) {
    clear(memory, true);
    auto start = std::chrono::steady_clock::now();
    if (decode(session, batch(prompt.data(), static_cast<std::int32_t>(prompt.size()))) != 0) return 1;
    wait(session);
    if (repeat > 0) prefill.push_back(milliseconds(start));
  }
  std::int32_t id = 1;
  const int steps = context / 2;  // positions context .. 1.5 context
  for (int step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    if (decode(session, batch(&id, 1)) != 0) return 1;
    wait(session);
    const double computed = milliseconds(start);
    const float* row = logits(session);
    id = static_cast<std::int32_t>(std::max_element(row, row + vocab) - row);
    if (step < 16) continue;  // warm-up
    tokens.push_back(computed);
    greedy.push_back(milliseconds(start));
  }
  std::printf(
      "{\"model\": \"%s\", \"context\": %d, \"token_ms\": %.4f, \"greedy_token_ms\": %.4f, \"prefill_ms\": %.3f}\n",
      std::filesystem::path(argv[2]).filename().c_str(), context, median(tokens), median(greedy), median(prefill));
  std::fflush(stdout);
  std::_Exit(0);  // its teardown is not what is measured
}
