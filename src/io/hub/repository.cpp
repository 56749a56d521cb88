#include "io/hub/repository.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/names.h"
#include "base/unicode.h"
#include "io/json_field.h"
#include "io/safetensors_folder.h"

namespace aeshna::hub {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFiles = 100'000;

/// What a folder of a model is made of, besides its tensors. preprocessor_config.json says what a vision model expects.
constexpr std::array<std::string_view, 6> kFolderFiles = {"config.json",         "generation_config.json",
                                                          "tokenizer.json",      "tokenizer_config.json",
                                                          "chat_template.jinja", "preprocessor_config.json"};

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

const RemoteFile* find(const std::vector<RemoteFile>& files, std::string_view path) {
  const auto found = std::ranges::find(files, path, &RemoteFile::path);
  return found == files.end() ? nullptr : &*found;
}

std::string size_text(std::uint64_t bytes) {
  return bytes < 10'000'000 ? formatted("{} kB", (bytes + 999) / 1000)
                            : formatted("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

/// "\n  a.gguf (0.14 GB)" for each, twenty at most.
std::string list_files(const std::vector<const RemoteFile*>& files) {
  std::string text;
  for (std::size_t i = 0; i < files.size() && i < 20; ++i)
    text += formatted("\n  {} ({})", valid_utf8(files[i]->path), size_text(files[i]->size));
  if (files.size() > 20) text += formatted("\n  and {} more", files.size() - 20);
  return text;
}

/// A wanted file, whose name may not do harm.
const RemoteFile* wanted(const RemoteFile* file, std::string_view model) {
  const std::string why = unsafe_path(file->path);
  if (!why.empty()) fail(ErrorCode::CorruptFile, "{} lists a file '{}', which is refused: {}", model, file->path, why);
  return file;
}

RemoteFile checked(RemoteFile file, const JsonField& at) {
  if (file.path.empty() || !is_hex(file.hash, file.lfs ? 64 : 40)) at.refuse("no file with a hash");
  if (file.size > (1ull << 50)) at.refuse("larger than any file");
  return file;
}

}  // namespace

bool is_commit(std::string_view text) { return is_hex(text, 40); }
bool ModelName::is_commit() const { return hub::is_commit(revision); }

ModelName parse_model_name(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::InvalidArgument,
         "'{}' is no model of the hub: {} (OWNER/MODEL, OWNER/MODEL@REVISION, OWNER/MODEL:FILE)", valid_utf8(text),
         why);
  };
  ModelName name;
  std::string_view rest = text;
  if (const std::size_t at = rest.find(':'); at != std::string_view::npos) {
    name.file = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (const std::string why = unsafe_path(name.file); !why.empty()) refuse("of the file, " + why);
  }
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    name.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (const std::string why = unsafe_path(name.revision); !why.empty()) refuse("of the revision, " + why);
  }
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos || rest.find('/', slash + 1) != std::string_view::npos)
    refuse("an owner and a model are needed, with a '/' between them");
  for (const std::string_view part : {rest.substr(0, slash), rest.substr(slash + 1)}) {
    const bool plain = !part.empty() && part.size() <= 96 && std::ranges::all_of(part, [](unsigned char c) {
      return c < 128 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
    });
    if (!plain || part.contains("..") || part.front() == '.' || part.front() == '-' || part.back() == '.')
      refuse(formatted("'{}' is no name", valid_utf8(part)));
  }
  name.model = rest;
  if (const std::string why = unsafe_path(name.model); !why.empty()) refuse(why);
  return name;
}

std::string unsafe_path(std::string_view path) {
  if (path.empty()) return "the name is empty";
  if (path.size() > 1000) return "the name is too long";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) return "a part of the path is empty";
    if (part == "." || part == "..") return "'.' and '..' lead elsewhere";
    if (part.size() > 200) return "a part of the path is too long";
    for (std::size_t at = 0; at < part.size();) {
      const Utf8Code code = utf8_at(part, at);
      if (!code.valid) return "it is not UTF-8";
      if (code.code < 32 || code.code == 127) return "it has a control character";
      at += code.bytes;
    }
    if (part.find_first_of("\\:*?\"<>|") != std::string_view::npos)
      return "it has one of the characters \\ : * ? \" < > |";
    if (part.back() == '.' || part.back() == ' ' || part.front() == ' ')
      return "a part begins or ends with a space or a dot";
    // Names of devices on Windows, whatever follows the first dot.
    std::string stem(part.substr(0, part.find('.')));
    for (char& c : stem) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const bool numbered = stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) &&
                          std::isdigit(static_cast<unsigned char>(stem[3])) != 0;
    if (numbered || stem == "CON" || stem == "PRN" || stem == "AUX" || stem == "NUL")
      return formatted("'{}' is a device on some systems", part);
  }
  return "";
}

void parse_tree(std::string_view text, const std::string& source, std::vector<RemoteFile>& files) {
  const json value = parse_json(text, source);
  for (const JsonField& entry : JsonField(source, value).items()) {
    if (!entry.is_object()) entry.refuse("no object");
    if (entry.at("type").text() != "file") continue;
    RemoteFile file{
        .path = entry.at("path").text(), .size = entry.at("size").count(), .hash = {}, .lfs = entry.has("lfs")};
    const JsonField named = file.lfs ? entry.at("lfs") : entry;
    file.hash = named.at("oid").text();
    if (file.hash.starts_with("sha256:")) file.hash.erase(0, 7);
    if (file.lfs) file.size = named.at("size").count();
    files.push_back(checked(std::move(file), entry));
    if (files.size() > kMaxFiles) fail(ErrorCode::LimitExceeded, "{}: more than {} files", source, kMaxFiles);
  }
}

std::string print_listing(const std::vector<RemoteFile>& files) {
  json list = json::array();
  for (const RemoteFile& file : files)
    list.push_back({{"path", file.path}, {"size", file.size}, {file.lfs ? "sha256" : "git_sha1", file.hash}});
  return json{{"aeshna_hub_listing", 1}, {"files", list}}.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::vector<RemoteFile> parse_listing(std::string_view text, const std::string& source) {
  const json value = parse_json(text, source);
  const JsonField top(source, value);
  if (!top.is_object() || top.at("aeshna_hub_listing").count() != 1) top.refuse("of another version");
  std::vector<RemoteFile> files;
  for (const JsonField& entry : top.at("files").items()) {
    const bool lfs = entry.has("sha256");
    files.push_back(checked({.path = entry.at("path").text(),
                             .size = entry.at("size").count(),
                             .hash = entry.at(lfs ? "sha256" : "git_sha1").text(),
                             .lfs = lfs},
                            entry));
  }
  return files;
}

Selection select_files(const ModelName& name, const std::vector<RemoteFile>& files) {
  Selection selection;
  const auto single = [&](const RemoteFile* file) {
    selection.files = {wanted(file, name.model)};
    selection.result = file->path;
    return selection;
  };
  if (!name.file.empty()) {
    if (const RemoteFile* file = find(files, name.file)) return single(file);
    std::vector<std::string> paths;
    for (const RemoteFile& file : files) paths.push_back(valid_utf8(file.path));
    fail(ErrorCode::NotFound, "{} has no file '{}'{}", name.model, name.file, suggest_names(name.file, paths));
  }
  const RemoteFile *tensors = find(files, kModelSafetensors), *index = find(files, kModelSafetensorsIndex);
  if (find(files, "config.json") != nullptr && (tensors != nullptr || index != nullptr)) {
    for (const std::string_view path : kFolderFiles)
      if (const RemoteFile* file = find(files, path)) selection.files.push_back(file);
    // As the loader prefers them.
    selection.index = index;
    selection.files.push_back(index != nullptr ? index : tensors);
    return selection;
  }
  std::vector<const RemoteFile*> gguf, others;
  for (const RemoteFile& file : files) (file.path.ends_with(".gguf") ? gguf : others).push_back(&file);
  if (gguf.size() == 1) return single(gguf.front());
  if (gguf.size() > 1) {
    fail(ErrorCode::NotFound, "{} has several GGUF files; name one, as in {}:{}{}", name.model, name.model,
         valid_utf8(gguf.front()->path), list_files(gguf));
  }
  fail(ErrorCode::Unsupported, "{} has neither config.json with model.safetensors nor a GGUF file; it has{}",
       name.model, others.empty() ? " nothing" : list_files(others));
}

std::vector<const RemoteFile*> indexed_files(std::string_view text, const std::string& source,
                                             const std::vector<RemoteFile>& files) {
  std::vector<const RemoteFile*> found;
  std::map<std::string_view, const RemoteFile*> by_path;  // both lists may be long
  for (const RemoteFile& file : files) by_path.emplace(file.path, &file);
  for (const auto& [path, tensors] : read_safetensors_index(parse_json(text, source), source)) {
    const auto file = by_path.find(path);
    if (file == by_path.end())
      fail(ErrorCode::CorruptFile, "{}: '{}' is in the file '{}', which the repository does not have", source,
           tensors.front(), path);
    found.push_back(wanted(file->second, source));
  }
  return found;
}

}  // namespace aeshna::hub
