// --hub and folders of Hugging Face, as a user of the program meets them.
#ifndef _WIN32
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "io/npy.h"
#include "nn/pretrained_folder.h"
#include "nn/tiny_language_model.h"
#include "support/fake_hub.h"
#include "support/run_program.h"
#include "support/temp_dir.h"
#include "support/test_device.h"

namespace aeshna::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// An environment with a cache and a hub of its own, and without what the user's has.
class HubProgram {
 public:
  HubProgram() {
    set("AESHNA_CACHE_DIR", cache.path().string());
    set("AESHNA_HUB_URL", hub.server.url());
    for (const char* name : {"HF_TOKEN", "AESHNA_OFFLINE", "AESHNA_LIBCURL"}) set(name, std::nullopt);
  }
  ~HubProgram() {
    for (const auto& [name, value] : old_) apply(name, value);
  }
  void set(const std::string& name, std::optional<std::string> value) {
    const char* now = std::getenv(name.c_str());
    old_.emplace(name, now == nullptr ? std::nullopt : std::optional<std::string>(now));
    apply(name, value);
  }
  ProgramResult run(std::vector<std::string> arguments) const { return run_program(std::move(arguments), work.path()); }

  TempDir cache, work;
  FakeHub hub;

 private:
  static void apply(const std::string& name, const std::optional<std::string>& value) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> old_;
};

/// What a folder holds, as a hub has it.
std::map<std::string, std::string> files_of(const PretrainedFolder& folder) {
  folder.write();
  return {{"config.json", read_text(folder.dir / "config.json")},
          {"model.safetensors", read_text(folder.dir / "model.safetensors")}};
}

TEST(CliHub, InfoOfADownloadedModel) {
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  p.hub.files = files_of(resnet_folder());
  p.hub.files["preprocessor_config.json"] =
      R"({"image_mean":[0.485,0.456,0.406],"do_resize":true,"filters":[1,2,3,4,5,6,7,8,9]})";
  const ProgramResult first = p.run({"info", "--hub", "me/tiny"});
  ASSERT_EQ(first.status, 0) << first.err;
  for (const char* part : {"resnet, 1+2 blocks, 26 parameters of 3,773 elements", "input   pixels  f32[1, 3, 224, 224]",
                           "output  logits  f32[1, 5]", "image_mean = [0.485,0.456,0.406]", "do_resize = true",
                           "not needed: resnet.embedder.embedder.normalization.num_batches_tracked and "})
    EXPECT_HAS(first.out, part);
  EXPECT_THAT(first.out, Not(HasSubstr("filters")));
  EXPECT_HAS(first.err, "downloaded me/tiny: ");
  const ProgramResult offline = p.run({"info", "--hub", "me/tiny", "--offline"});
  EXPECT_EQ(offline.out, first.out);
  EXPECT_HAS(offline.err, "me/tiny: offline, using commit aaaaaaaaaaaa in the cache");
  EXPECT_EQ(p.run({"-q", "info", "--hub", "me/tiny", "--offline"}).err, "");
}

TEST(CliHub, TokenFiles) {
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  p.hub.files = files_of(resnet_folder());
  p.hub.before = [](const HttpTestRequest& request) -> std::optional<HttpTestReply> {
    if (request.has("authorization") && request.headers.at("authorization") == "Bearer hf_secret") return std::nullopt;
    return HttpTestReply{.status = 403, .headers = {"X-Error-Code: GatedRepo"}};
  };
  const ProgramResult gated = p.run({"info", "--hub", "me/tiny"});
  EXPECT_EQ(gated.status, 1);
  EXPECT_HAS(gated.err, "The model may be gated: accept its terms at " + p.hub.server.url() + "/me/tiny");
  p.work.write("token", "  hf_secret\n");
  EXPECT_EQ(p.run({"info", "--hub", "me/tiny", "--token-file", "token"}).status, 0);
  p.work.write("token", "\n");
  EXPECT_HAS(p.run({"info", "--hub", "me/tiny", "--token-file", "token"}).err, "--token-file token: the file is empty");
  EXPECT_HAS(p.run({"info", "--hub", "me/tiny", "--token-file", "none"}).err, "none");
}

TEST(CliHub, Messages) {
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  const auto error = [&](std::vector<std::string> arguments, int status = 1) {
    const ProgramResult result = p.run(std::move(arguments));
    EXPECT_EQ(result.status, status) << result.out;
    return result.err;
  };
  EXPECT_HAS(error({"info", "--hub", "tiny"}), "'tiny' is no model of the hub");
  EXPECT_HAS(error({"info", "x.gguf", "--offline"}, 2), "--offline is for models of the hub: give --hub too");
  EXPECT_HAS(error({"info", "x.gguf", "--token-file", "t"}, 2), "--token-file is for models of the hub");
  EXPECT_HAS(error({"info", "--hub", "me/tiny", "--hub-url", "gopher://x"}), "is no URL of a hub");
  EXPECT_HAS(error({"info", "--hub", "me/tiny"}),
             "neither config.json with model.safetensors nor a GGUF file; it has nothing");
  p.set("AESHNA_LIBCURL", "/nonexistent/libcurl.so");
  EXPECT_HAS(error({"info", "--hub", "me/tiny"}),
             "downloads need libcurl, which cannot be used (/nonexistent/libcurl.so");
  p.set("AESHNA_LIBCURL", std::nullopt);
  p.set("AESHNA_CACHE_DIR", "off");
  EXPECT_HAS(error({"info", "--hub", "me/tiny"}), "models of the hub need a cache directory");
}

TEST(CliHub, ConvertsADownloadedModel) {
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  p.hub.files = files_of(vit_folder(true));
  const ProgramResult result = p.run({"convert", "--hub", "me/tiny", "out.safetensors", "--type", "f16"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_HAS(result.out, "wrote out.safetensors: 40 tensors, 16 of them converted");
  EXPECT_HAS(p.run({"info", "out.safetensors"}).out, "vit.encoder.layer.0.attention.attention.query.weight");
}

TEST(CliDeviceHub, RunsAVisionModel) {
  AESHNA_NEED_DEVICE();
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  p.hub.files = files_of(vit_folder(true));
  const HostTensor pixels = random_tensor("pixels", {2, 3, 12, 8}, -2, 2);
  write_npy(p.work / "x.npy", Literal::from_doubles(pixels.type, pixels.data));
  const ProgramResult result = p.run({"run", "--hub", "me/tiny", "--input", "pixels=x.npy", "--output-dir", "out"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_npy(p.work / "out/logits.npy").type().to_string(), "f32[2, 5]");
  EXPECT_EQ(read_npy(p.work / "out/last_hidden_state.npy").type().to_string(), "f32[2, 7, 24]");
  EXPECT_HAS(p.run({"run", "--hub", "me/tiny"}).err,
             "no values (--input NAME=FILE.npy) are given for these inputs:\n  pixels f32[1, 3, 12, 8]");
  p.hub.files["config.json"] = "{\"model_type\":\"llama\"}";
  p.hub.commit.back() = '5';
  EXPECT_HAS(p.run({"run", "--hub", "me/tiny", "--input", "pixels=x.npy"}).err,
             "the model_type 'llama' is not among those of vision and speech");
}

TEST(CliDeviceHub, GeneratesWithADownloadedModel) {
  AESHNA_NEED_DEVICE();
  AESHNA_NEED_LIBCURL();
  HubProgram p;
  write_tiny_gguf(p.work / "tiny.gguf", tiny_model("llama"));
  p.hub.files = {{"tiny-f32.gguf", read_text(p.work / "tiny.gguf")}, {"tiny-other.gguf", std::string(500, 'x')}};
  const std::vector<std::string> rest = {"ab", "--max-tokens", "4", "--context", "32"};
  const auto arguments = [&](std::vector<std::string> first) {
    first.insert(first.end(), rest.begin(), rest.end());
    return first;
  };
  const ProgramResult local = p.run(arguments({"-q", "generate", "tiny.gguf"}));
  const ProgramResult fetched = p.run(arguments({"-q", "generate", "--hub", "me/tiny:tiny-f32.gguf"}));
  ASSERT_EQ(fetched.status, 0) << fetched.err;
  EXPECT_EQ(fetched.out, local.out);
  EXPECT_HAS(p.run(arguments({"generate", "--hub", "me/tiny"})).err,
             "several GGUF files; name one, as in me/tiny:tiny-f32.gguf\n  tiny-f32.gguf");
}

}  // namespace
}  // namespace aeshna::test
#endif
