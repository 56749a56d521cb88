// glslang in process.
#include <algorithm>
#include <charconv>
#include <iosfwd>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>

#include "base/fail.h"
#include "base/format.h"
#include "codegen/codegen.h"

// glslang calls these when an option asks for SPIRV-Tools' optimizer, validator or disassembler, which none of ours does. Defined
// here, a static link leaves SPIRV-Tools out, which is a third of the program; a glslang with other signatures, or a shared one,
// keeps its own.
namespace glslang {
class TIntermediate;
using Words = std::vector<unsigned int>;
void SpirvToolsTransform(const TIntermediate&, Words&, spv::SpvBuildLogger*, const SpvOptions*) {}
void SpirvToolsStripDebugInfo(const TIntermediate&, Words&, spv::SpvBuildLogger*) {}
void SpirvToolsValidate(const TIntermediate&, Words&, spv::SpvBuildLogger*, bool) {}
void SpirvToolsDisassemble(std::ostream&, const Words&) {}
}  // namespace glslang

namespace aeshna {
namespace {

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] { AESHNA_CHECK(glslang::InitializeProcess()); });
}

/// The lines that the log complains of ("ERROR: name:12: ..."), three around each, numbered.
std::string excerpt(std::string_view source, std::string_view log) {
  std::set<std::size_t> wanted;
  for (std::size_t at = log.find("ERROR: "); at != std::string_view::npos; at = log.find("ERROR: ", at + 1)) {
    const std::size_t colon = log.find(':', at + 7);
    if (colon == std::string_view::npos) break;
    std::size_t line = 0;
    std::from_chars(log.data() + colon + 1, log.data() + log.size(), line);
    if (line == 0 || wanted.size() > 40) continue;
    for (std::size_t near = line > 3 ? line - 3 : 1; near <= line + 3; ++near) wanted.insert(near);
  }
  std::string text;
  std::size_t number = 1;
  for (std::size_t start = 0; start < source.size(); ++number) {
    const std::size_t end = std::min(source.find('\n', start), source.size());
    if (wanted.contains(number)) text += formatted("{:5} | {}\n", number, source.substr(start, end - start));
    start = end + 1;
  }
  return text;
}

/// Without names and source lines, which no driver needs (SPIR-V specification, 3.52.1 and 3.52.2).
std::vector<std::uint32_t> stripped(const std::vector<unsigned int>& spirv) {
  constexpr std::size_t kHeader = 5;
  constexpr std::uint32_t kSourceContinued = 2, kLine = 8, kNoLine = 317, kModuleProcessed = 330;
  AESHNA_CHECK(spirv.size() >= kHeader);
  std::vector<std::uint32_t> words(spirv.begin(), spirv.begin() + kHeader);
  for (std::size_t at = kHeader; at < spirv.size();) {
    const std::uint32_t length = spirv[at] >> 16, opcode = spirv[at] & 0xffff;
    AESHNA_CHECK(length > 0 && length <= spirv.size() - at);
    const bool debug =
        (opcode >= kSourceContinued && opcode <= kLine) || opcode == kNoLine || opcode == kModuleProcessed;
    if (!debug)
      words.insert(words.end(), spirv.begin() + static_cast<std::ptrdiff_t>(at),
                   spirv.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return words;
}

}  // namespace

std::vector<std::uint32_t> compile_glsl(std::string_view glsl, std::string_view name) {
  initialize();
  const std::string label(name);
  const char* text = glsl.data();
  const char* label_text = label.c_str();
  const int length = static_cast<int>(glsl.size());

  glslang::TShader shader(EShLangCompute);
  shader.setStringsWithLengthsAndNames(&text, &length, &label_text, 1);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 460);
  shader.setEnvClient(glslang::EShClientVulkan, glslang::EShTargetVulkan_1_2);
  shader.setEnvTarget(glslang::EShTargetSpv, glslang::EShTargetSpv_1_5);
  constexpr auto kMessages = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);
  const auto check = [&](bool ok, const char* what, const std::string& log) {
    if (!ok) fail(ErrorCode::Internal, "kernel '{}' does not {}:\n{}{}", name, what, log, excerpt(glsl, log));
  };
  const bool parsed = shader.parse(GetDefaultResources(), 460, false, kMessages);
  check(parsed, "compile", shader.getInfoLog());
  glslang::TProgram program;
  program.addShader(&shader);
  const bool linked = program.link(kMessages);
  check(linked, "link", program.getInfoLog());

  glslang::SpvOptions options;
  options.disableOptimizer = true;  // drivers optimize; time to the first step counts
  std::vector<unsigned int> spirv;
  spv::SpvBuildLogger logger;
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), spirv, &logger, &options);
  const std::string messages = logger.getAllMessages();
  check(!spirv.empty() && messages.find("error") == std::string::npos, "translate to SPIR-V", messages);
  return stripped(spirv);
}

std::string glslang_version() {
  const glslang::Version version = glslang::GetVersion();
  return formatted("{}.{}.{}{}", version.major, version.minor, version.patch, version.flavor);
}

void warm_up_glslang() {
  // The first shader builds glslang's tables of built-in functions, later ones share them; a compilation that comes
  // meanwhile waits inside glslang. The thread is joined when the program ends.
  static const std::jthread worker([] {
    try {
      compile_glsl("#version 460\nlayout(local_size_x = 1) in;\nvoid main() {}\n", "warm-up");
    } catch (const std::exception&) {  // the first real kernel reports what is wrong
    }
  });
}

}  // namespace aeshna
