// Asks a language model one question and prints the answer as it comes: example_chat MODEL.gguf "question"
#include <aeshna/aeshna.h>

#include <cstdio>
#include <filesystem>
#include <vector>

using namespace aeshna;

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::printf("usage: %s MODEL \"question\", with a GGUF file or a folder of Hugging Face as MODEL\n", argv[0]);
    return 0;
  }
  const bool folder = std::filesystem::is_directory(argv[1]);
  const LanguageModel model = folder ? LanguageModel::load_hugging_face(argv[1]) : LanguageModel::load_gguf(argv[1]);

  // A conversation as the tokens that the model was trained on.
  const std::vector<ChatMessage> messages = {{"user", argv[2]}};
  const auto prompt = model.tokenizer().encode(model.chat_template().render(messages, model.tokenizer()), false);

  Generator generator(model, {.context = 1024});
  const SamplingOptions sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 1};
  generator.generate(prompt, sampling, {.max_tokens = 200, .on_text = [](std::string_view text) {
                                          std::fwrite(text.data(), 1, text.size(), stdout);
                                          return std::fflush(stdout) == 0;
                                        }});
  std::puts("");
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
