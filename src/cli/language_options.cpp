#include "cli/language_options.h"

#include "cli/command.h"

namespace aeshna::cli {

void add_generator_options(CLI::App& command, GeneratorOptions& options) {
  command.add_option("--context", options.context, "Tokens of prompt and answer together at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--chunk", options.chunk, "Tokens of the prompt that one step reads at most")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->type_name("N");
}

void add_sampling_options(CLI::App& command, SamplingOptions& options) {
  command.add_option("--temperature", options.temperature, "0: the most likely token always")
      ->check(finite())
      ->capture_default_str()
      ->type_name("X");
  command.add_option("--top-k", options.top_k, "Of the K most likely tokens; 0: all")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str()
      ->type_name("K");
  command.add_option("--top-p", options.top_p, "Of the most likely tokens with this probability together")
      ->check(finite())
      ->capture_default_str()
      ->type_name("P");
  command.add_option("--min-p", options.min_p, "Of tokens with this share of the best one's probability")
      ->check(finite())
      ->capture_default_str()
      ->type_name("P");
  command.add_option("--repetition-penalty", options.repetition_penalty, "Divides logits of recent tokens")
      ->check(finite())
      ->capture_default_str()
      ->type_name("X");
}

void check_options(const SamplingOptions& options) {
  try {
    check_sampling(options);
  } catch (const Error& error) {
    wrong_arguments("{}", error.message());
  }
}

void add_answer_options(CLI::App& command, SamplingOptions& sampling, GenerateOptions& options) {
  command.add_option("--max-tokens", options.max_tokens, "Of an answer at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("N");
  command.add_option("--stop", options.stop, "Ends before this text; may be given several times")->type_name("TEXT");
  command.add_option("--seed", sampling.seed, "Of the choice of tokens, where --temperature is not 0")
      ->check(unsigned_number())
      ->capture_default_str()
      ->type_name("N");
}

}  // namespace aeshna::cli
