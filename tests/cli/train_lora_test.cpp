// aeshna train lora, and what becomes of its adapter: generated from, merged, gone on with.
#ifndef _WIN32
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "nn/tiny_language_model.h"
#include "support/run_program.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna {
namespace {

using Arguments = std::vector<std::string>;
using Result = test::ProgramResult;

Result run(const Arguments& arguments, const test::TempDir& dir, const std::string& stop_at = "") {
  return test::run_program(arguments, dir.path(), stop_at);
}

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A small llama in q8_0, as users have them.
void write_model(const test::TempDir& dir) {
  test::TinyModel model = test::tiny_model("llama");
  model.all_f32 = true;
  model.hidden = 64, model.ffn = 96, model.head_dim = 16;
  test::write_tiny_gguf(dir / "wide.gguf", model);
  ASSERT_EQ(run({"convert", "-q", "wide.gguf", "m.gguf", "--type", "q8_0"}, dir).status, 0);
}

double number_after(const std::string& text, const std::string& label) {
  const std::size_t at = text.rfind(label);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + label.size()));
}

TEST(CliLoraDevice, LearnsATextAndWritesIt) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  write_model(dir);
  const std::string text = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.";
  dir.write("fox.txt", text);
  const Result trained = run({"train", "lora", "m.gguf", "--data", "fox.txt", "--out", "fox", "--window", "64",
                              "--batch", "1", "--steps", "60", "--lr", "0.02", "--rank", "8", "--alpha", "16"},
                             dir);
  ASSERT_EQ(trained.status, 0) << trained.out << trained.err;
  for (const char* part : {"fox.txt: 1 examples, ", "m.gguf: ", "rank 8 beside 14 linears", "step 60/60", "steps/s",
                           "fox/adapter_model.safetensors and fox/adapter_config.json"})
    EXPECT_HAS(trained.out, part);
  EXPECT_EQ(trained.out.find('\r'), std::string::npos) << "a pipe is no terminal";
  EXPECT_GT(number_after(trained.out, "steps in "), 0);
  EXPECT_LT(number_after(trained.out, "at first, "), 0.2) << trained.out;
  EXPECT_HAS(test::read_text(dir / "fox/loss.svg"), "training loss");

  // The text comes back, from the adapter and from the merged model.
  const Arguments write = {"The quick brown", "-q", "--max-tokens", "12", "--context", "64"};
  const Result adapted = run(Arguments{"generate", "m.gguf"} + write + Arguments{"--adapter", "fox"}, dir);
  EXPECT_EQ(adapted.status, 0) << adapted.err;
  EXPECT_TRUE(text.find(adapted.out.substr(0, adapted.out.size() - 1)) == 15 && adapted.out.size() > 13) << adapted.out;
  EXPECT_NE(run(Arguments{"generate", "m.gguf"} + write, dir).out, adapted.out);
  const Result merged = run({"convert", "m.gguf", "merged.gguf", "--adapter", "fox"}, dir);
  EXPECT_EQ(merged.status, 0) << merged.err;
  EXPECT_HAS(merged.out, "21 tensors, 14 merged with the adapter, rounded to q8_0, 0 of them converted");
  EXPECT_EQ(run(Arguments{"generate", "merged.gguf"} + write, dir).out, adapted.out);
  EXPECT_HAS(run({"convert", "m.gguf", "f.gguf", "--adapter", "fox", "--type", "f32"}, dir).out,
             "14 merged with the adapter, 16 of them converted");
}

/// With everything on that a resumed run has to bring back: dropout, accumulated gradients, an order that ends amid a step.
TEST(CliLoraDevice, GoesOnExactly) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  write_model(dir);
  std::string lines;
  for (int i = 0; i < 7; ++i)
    lines += nlohmann::json{{"prompt", "Number " + std::to_string(i)}, {"completion", " is " + std::to_string(9 - i)}}
                 .dump() +
             "\n";
  dir.write("numbers.jsonl", lines);
  const Arguments base = {"train",
                          "lora",
                          "m.gguf",
                          "--data",
                          "numbers.jsonl",
                          "--batch",
                          "2",
                          "--accumulate",
                          "2",
                          "--dropout",
                          "0.2",
                          "--lr",
                          "0.01",
                          "--schedule",
                          "constant",
                          "--warmup",
                          "3",
                          "--targets",
                          "q_proj,v_proj,down_proj",
                          "--validation",
                          "0.15",
                          "--rslora",
                          "--seed",
                          "5"};
  const auto adapter = [&](const char* out) { return test::read_text(dir / out / "adapter_model.safetensors"); };
  ASSERT_EQ(run(base + Arguments{"--out", "whole", "--steps", "6"}, dir).status, 0);
  ASSERT_EQ(run(base + Arguments{"--out", "parts", "--steps", "2"}, dir).status, 0);
  EXPECT_NE(adapter("whole"), adapter("parts"));
  const Result resumed = run(base + Arguments{"--out", "parts", "--steps", "6", "--resume"}, dir);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_HAS(resumed.out, "4 steps in");
  EXPECT_HAS(resumed.out, "6 examples, ");
  EXPECT_HAS(resumed.out, "1 examples held out");
  EXPECT_HAS(resumed.out, "perplexity");
  EXPECT_EQ(adapter("whole"), adapter("parts"));
  EXPECT_EQ(test::read_text(dir / "whole/adapter_config.json"), test::read_text(dir / "parts/adapter_config.json"));
  const SafetensorsFile checkpoint(dir / "parts/checkpoint.safetensors");
  EXPECT_EQ(checkpoint.find("model.embed_tokens.weight"), nullptr);

  EXPECT_HAS(run(base + Arguments{"--out", "parts", "--steps", "6", "--resume"}, dir).out, "has all 6 steps already");
  EXPECT_HAS(run(base + Arguments{"--out", "new", "--steps", "1", "--resume"}, dir).out, "starting anew");
  dir.write("numbers.jsonl", lines + lines);
  const Result other = run(base + Arguments{"--out", "parts", "--steps", "9", "--resume", "--rank", "4"}, dir);
  EXPECT_EQ(other.status, 1);
  EXPECT_HAS(
      other.err,
      "parts/checkpoint.safetensors is of another run, from which this one cannot go on: these differ: --rank, data");
}

TEST(CliLoraDevice, StopsWithACheckpoint) {
  AESHNA_NEED_DEVICE();
  const test::TempDir dir;
  write_model(dir);
  dir.write("t.txt", "some words to learn, over and over again");
  const Arguments command = {"train", "lora", "m.gguf", "--data", "t.txt", "--steps", "40", "--save-every", "100"};
  const Result stopped = run(command, dir, "step ");
  EXPECT_EQ(stopped.status, 130) << stopped.out << stopped.err;
  EXPECT_HAS(stopped.out, "stopped   on request; lora/checkpoint.safetensors holds everything");
  EXPECT_TRUE(std::filesystem::exists(dir / "lora/adapter_config.json"));
}

TEST(CliLoraDevice, ErrorsNameTheThing) {
  const test::TempDir dir;
  write_model(dir);
  const auto error = [&](const Arguments& more, const char* part) {
    const Result result = run(Arguments{"train", "lora"} + more, dir);
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_HAS(result.err, part);
    EXPECT_EQ(result.out, "");
  };
  dir.write("good.txt", "a text that is long enough");
  dir.write("bad.jsonl", "{\"text\": \"good\"}\n\n{\"text\": 5}\n");
  error({"none.gguf", "--data", "good.txt"}, "none.gguf");
  error({"m.gguf", "--data", "none.txt"}, "none.txt");
  error({"m.gguf", "--data", "bad.jsonl"}, "bad.jsonl:3: 'text' is number, not a string");
  error({"m.gguf", "--data", "m.gguf"}, "m.gguf: text to train on is .txt or .md, or .jsonl");
  error({"m.gguf", "--data", "good.txt", "--targets", "w_proj"}, "no linears for the LoRA targets 'w_proj'");
  error({"m.gguf", "--data", "good.txt", "--window", "65"}, "--window 65: m.gguf was trained for 64 positions");
  error({"m.gguf", "--data", "good.txt", "--window", "4", "--validation", "0.01"}, "holds out 0");
  for (const Arguments& usage :
       {Arguments{"--steps", "0"}, {"--lr", "nan"}, {"--steps", "2", "--epochs", "2"}, {"--dropout", "1"}})
    EXPECT_EQ(run(Arguments{"train", "lora", "m.gguf", "--data", "good.txt"} + usage, dir).status, 2) << usage[1];
  const Result warmup =
      run({"train", "lora", "m.gguf", "-q", "--data", "good.txt", "--steps", "3", "--warmup", "3"}, dir);
  EXPECT_HAS(warmup.err, "total (3) must be greater than warmup (3)");
}

}  // namespace
}  // namespace aeshna
#endif
