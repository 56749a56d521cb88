// Text generation with a language model of SmolLM2-135M's shape or of Llama 3.2 1B's and random weights: time for each token and for reading a prompt,
// through the public Generator, and what the device itself takes for a step.
//   bench_decode [--device SEL] [--out FILE] [--shape smollm2-135m|llama-1b|small] [--types f32,q8_0,q4_0] [--batches 1,8]
//                [--prompt N] [--chunk N] [--plan FILE]
// Weights of every type come from the same f32 values. Prompts are random ids; generation goes over positions around `context`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "aeshna/generate.h"
#include "aeshna/quantize.h"
#include "arguments.h"
#include "base/env.h"
#include "base/fail.h"
#include "base/format.h"
#include "base/philox.h"
#include "gpu/device.h"
#include "ir/leaf.h"
#include "machine.h"
#include "nn/language/loader.h"
#include "runtime/profile.h"

namespace {

using namespace aeshna;

struct Arguments {
  std::string device, out, plan, shape = "smollm2-135m";
  std::vector<std::string> types = {"f32", "q8_0", "q4_0"};
  std::vector<std::int64_t> batches = {1, 8};
  std::int64_t prompt = 0, chunk = 0;  // 0: as lengths() has them
};

models::LlamaConfig shape_of(const std::string& name) {
  models::LlamaConfig c;
  if (name == "smollm2-135m") {
    c = {.vocab = 49152, .hidden = 576, .layers = 30, .heads = 9, .kv_heads = 3, .head_dim = 64, .ffn = 1536};
    c.rope_base = 100000;
  } else if (name == "llama-1b") {
    c = {.vocab = 128256, .hidden = 2048, .layers = 16, .heads = 32, .kv_heads = 8, .head_dim = 64, .ffn = 8192};
    c.rope_base = 500000;
  } else if (name == "small") {
    c = {.vocab = 1024, .hidden = 576, .layers = 2, .heads = 9, .kv_heads = 3, .head_dim = 64, .ffn = 1536};
  } else {
    fail(ErrorCode::InvalidArgument, "no shape '{}'", name);
  }
  return c;
}

/// Values of a parameter: norms are 1, matrices uniform with a deviation that keeps activations of one size.
Literal random_weight(const TensorType& type, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(type.shape.elements()), 1.0f);
  if (type.shape.rank() == 2) {
    const double scale = std::sqrt(3.0 / static_cast<double>(type.shape[1]));
    PhiloxStream random(1, stream);
    for (float& v : values) v = static_cast<float>(scale * (2 * random.next_uniform() - 1));
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {TensorType{DType::f32, type.shape}, std::vector<std::byte>(bytes.begin(), bytes.end())};
}

/// Single bytes, then words that text never has: enough for ids to have texts.
TokenizerSpec tokens(std::int64_t vocab) {
  TokenizerSpec spec;
  spec.name = "random weights";
  for (std::int64_t i = 0; i < vocab; ++i)
    spec.tokens.push_back({.text = i < 256 ? std::string(1, static_cast<char>(i)) : formatted(" word{}", i)});
  spec.splits = {SplitRule::Gpt2};
  return spec;
}

LanguageModel random_model(const models::LlamaConfig& config, DType dtype) {
  ModelLoader loader("random weights");
  loader.config() = config;
  Graph graph;
  models::llama(graph.input("ids", {1, 1}, DType::i32), config);
  std::map<std::string, FoundTensor, std::less<>> tensors;
  // Parameters of one type have the same values: they take longer to make than to use.
  const auto made = std::make_shared<std::map<std::vector<std::int64_t>, Literal>>();
  for (const Node& node : graph.nodes()) {
    if (!is_parameter(node)) continue;
    TensorType type = node.results[0];
    if (type.shape.rank() == 2) type.dtype = dtype;
    const auto read = [type, made] {
      const std::span<const std::int64_t> dims = type.shape.dims();
      const auto [at, fresh] = made->try_emplace({dims.begin(), dims.end()});
      if (fresh) {
        const Literal value = random_weight(type, made->size());
        at->second =
            is_quantized(type.dtype) ? quantize(value, type.dtype) : Literal::from_doubles(type, value.to_doubles());
      }
      return at->second;
    };
    tensors.emplace(node.name, FoundTensor{.file_name = node.name, .type = type, .read = read});
  }
  loader.set_tensors(std::move(tensors));
  return loader.finish(tokens(config.vocab));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t vocab, std::uint64_t stream) {
  PhiloxStream random(2, stream);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(vocab))));
  return ids;
}

struct Lengths {
  std::int64_t context, prompt, answer, chunk;
};

Lengths lengths(bool small) { return small ? Lengths{128, 48, 16, 32} : Lengths{1024, 512, 64, 512}; }

/// `batch` sequences at once, greedy or sampled.
nlohmann::json generation(const LanguageModel& model, const Device& device, const Lengths& l, const std::string& type,
                          std::int64_t batch, bool sampled) {
  Generator generator(model, {.context = l.context, .chunk = l.chunk, .sequences = batch, .device = device});
  std::vector<double> prompt_ms, token_us;
  for (std::uint64_t i = 0; i < 7; ++i) {
    std::vector<Request> requests;
    for (std::int64_t b = 0; b < batch; ++b) {
      Request& r = requests.emplace_back(
          Request{.prompt = random_ids(l.prompt, model.config().vocab, 100 * i + static_cast<std::uint64_t>(b))});
      r.options.max_tokens = l.answer;
      if (sampled) r.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = i};
    }
    const std::vector<Generation> g = generator.generate(requests);
    if (i < 2) continue;  // warm
    // The last sequence whose prompt was read: from then on all of them run.
    const Generation& last = g.back();
    prompt_ms.push_back(last.prompt_seconds * 1e3);
    token_us.push_back(last.seconds * 1e6 / static_cast<double>(last.ids.size() - 1));
  }
  std::printf("%-6s generate x %lld %-8s  %9.1f us/token   %lld prompts of %lld: %8.2f ms\n", type.c_str(),
              static_cast<long long>(batch), sampled ? "sampled" : "greedy", median(token_us),
              static_cast<long long>(batch), static_cast<long long>(l.prompt), median(prompt_ms));
  std::fflush(stdout);
  return {{"batch", batch},
          {"sampled", sampled},
          {"token_us", median(token_us)},
          {"token_samples_us", token_us},
          {"prompt_ms", median(prompt_ms)},
          {"prompt_samples_ms", prompt_ms}};
}

/// Nothing runs there (--device null:FILE): only the plans can be looked at.
bool device_only_plans(const Device& device) { return device.impl().timestamp_slots() == 0; }

/// One session of `rows` ids for each of `batch` sequences at position `at`, alone.
nlohmann::json step(const LanguageModel& model, const Device& device, const Lengths& l, const std::string& type,
                    std::int64_t batch, std::int64_t rows, std::int64_t at, std::string& plans) {
  Graph graph;
  const Value ids = graph.input("ids", {batch, rows}, DType::i32);
  const models::LlamaDecode decode{.position = graph.input("position", {batch}, DType::i32),
                                   .capacity = l.context,
                                   .row = graph.input("row", {batch}, DType::i32)};
  graph.output("next", argmax({models::llama_decode(ids, decode, model.config())}, -1));
  Weights weights(device);
  Session session = compile(graph, weights);
  load_weights(model, weights);
  session.set("ids", random_ids(batch * rows, model.config().vocab, 7));
  session.set("position", std::vector<std::int32_t>(static_cast<std::size_t>(batch), static_cast<std::int32_t>(at)));
  session.set("row", std::vector<std::int32_t>(static_cast<std::size_t>(batch), static_cast<std::int32_t>(rows - 1)));
  plans += formatted("==== {} batch {} rows {}\n{}\n", type, batch, rows, session.plan());
  if (device_only_plans(device)) {
    std::set<std::uint32_t> groups;
    const std::vector<ProfileRow> rows_of = profile_rows(session.impl());
    for (const ProfileRow& row : rows_of) groups.insert(row.group);
    std::printf("%-6s step %lld x %-5lld  %zu dispatches, %zu groups\n", type.c_str(), static_cast<long long>(batch),
                static_cast<long long>(rows), rows_of.size(), groups.size());
    return {{"batch", batch}, {"rows", rows}, {"dispatches", rows_of.size()}, {"groups", groups.size()}};
  }
  const Profile p = profile(session, {.repeats = 3, .wall_seconds = 1, .ceilings = false});
  std::printf("%-6s step %lld x %-5lld  %9.1f us on the device, %9.1f us waited for; %zu dispatches, %u barriers\n",
              type.c_str(), static_cast<long long>(batch), static_cast<long long>(rows), p.device_ms * 1e3,
              p.wall_median_ms * 1e3, p.rows.size(), p.barriers);
  std::fflush(stdout);
  nlohmann::json kernels = nlohmann::json::array();
  for (const ProfilePattern& pattern : group_rows(p, pattern_key)) {
    const ProfileRow& row = p.rows[pattern.rows[0]];
    kernels.push_back({{"us", pattern.us},
                       {"count", pattern.rows.size()},
                       {"family", row.family},
                       {"variant", row.variant},
                       {"shape", row.shape},
                       {"ops", row.ops},
                       {"site", row.site}});
  }
  return {{"batch", batch},
          {"rows", rows},
          {"device_us", p.device_ms * 1e3},
          {"wall_us", p.wall_median_ms * 1e3},
          {"dispatches", p.rows.size()},
          {"barriers", p.barriers},
          {"alone_us", p.sum_us()},
          {"kernels", kernels}};
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (i + 1 == argc) fail(ErrorCode::InvalidArgument, "{} needs a value", option);
    const std::string value = argv[++i];
    if (option == "--device") {
      a.device = value;
    } else if (option == "--out" || option == "--json") {
      a.out = value;
    } else if (option == "--plan") {
      a.plan = value;
    } else if (option == "--shape") {
      a.shape = value;
    } else if (option == "--types") {
      a.types = bench::split(value);
    } else if (option == "--prompt") {
      a.prompt = std::stoll(value);
    } else if (option == "--chunk") {
      a.chunk = std::stoll(value);
    } else if (option == "--batches") {
      a.batches.clear();
      for (const std::string& part : bench::split(value)) a.batches.push_back(std::stoll(part));
    } else {
      fail(ErrorCode::InvalidArgument, "unknown option {}", option);
    }
  }
  return a;
}

}  // namespace

int main(int argc, char** argv) try {
  env_use_own_pipeline_cache();
  const Arguments a = parse(argc, argv);
  const Device device(DeviceRequest{.selector = a.device});
  std::printf("device: %s (%s)\n", device.info().name.c_str(), device.info().driver.c_str());
  const models::LlamaConfig config = shape_of(a.shape);
  Lengths l = lengths(a.shape == "small");
  if (a.prompt > 0) l.context += a.prompt - l.prompt, l.prompt = a.prompt;
  if (a.chunk > 0) l.chunk = a.chunk;
  nlohmann::json results = nlohmann::json::object();
  std::string plans;
  for (const std::string& type : a.types) {
    const LanguageModel model = random_model(config, parse_dtype(type));
    nlohmann::json& result = results[type];
    for (const std::int64_t batch : a.batches) {
      for (const bool sampled : {false, true})
        if (!device_only_plans(device))
          result["generate"].push_back(generation(model, device, l, type, batch, sampled));
    }
    for (const std::int64_t batch : a.batches) {
      result["steps"].push_back(step(model, device, l, type, batch, 1, l.prompt + l.answer / 2, plans));
      if (batch == 1)
        result["steps"].push_back(
            step(model, device, l, type, batch, l.chunk, std::max<std::int64_t>(0, l.prompt - l.chunk), plans));
    }
  }
  if (!a.plan.empty()) std::ofstream(a.plan) << plans;
  if (!a.out.empty()) {
    nlohmann::json file = {{"machine", bench::machine(device)},
                           {"shape", a.shape},
                           {"context", l.context},
                           {"prompt", l.prompt},
                           {"answer", l.answer},
                           {"chunk", l.chunk},
                           {"results", results}};
    std::ofstream(a.out) << file.dump(1) << "\n";
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_decode: %s\n", e.what());
  return 1;
}
