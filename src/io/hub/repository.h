#pragma once
// What a repository of the hub is called and what it holds. Pure: no network, no disk. All of it comes from others and is checked here.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aeshna::hub {

/// "owner/model[@revision][:file]"
struct ModelName {
  std::string model;              ///< "owner/model"
  std::string revision = "main";  ///< a branch, a tag or a commit
  std::string file;               ///< "" unless one file was asked for
  bool is_commit() const;
};
/// Error(InvalidArgument) saying what a name looks like.
ModelName parse_model_name(std::string_view name);

/// 40 digits, as git names commits.
bool is_commit(std::string_view text);

/// Why no file may have this relative path ('/' between its parts) on any system that Aeshna knows; "": it may.
std::string unsafe_path(std::string_view path);

struct RemoteFile {
  std::string path;
  std::uint64_t size = 0;
  std::string hash;  ///< hexadecimal: SHA-256 if `lfs`, else SHA-1 of git's blob
  bool lfs = false;
};

/// One page of the hub's answer to ".../tree/<commit>?recursive=true", appended to `files`. Error(CorruptFile) naming `source`.
void parse_tree(std::string_view json, const std::string& source, std::vector<RemoteFile>& files);
/// The same list as the cache keeps it.
std::string print_listing(const std::vector<RemoteFile>& files);
std::vector<RemoteFile> parse_listing(std::string_view json, const std::string& source);

/// What to fetch, and what the user gets of it.
struct Selection {
  std::vector<const RemoteFile*> files;
  const RemoteFile* index = nullptr;  ///< among `files`: names the files of tensors, which are to be fetched too
  std::string result;                 ///< the single file; "": the folder
};
/// The file that the name asks for; else, if there are config.json and model.safetensors (or its index), these and what belongs to them; else the only
/// GGUF file. Error(NotFound) with near names; Error(Unsupported) with what there is, or with the GGUF files to choose from.
Selection select_files(const ModelName& name, const std::vector<RemoteFile>& files);
/// The files that an index of tensors names. Error(CorruptFile) for one that is not in the repository.
std::vector<const RemoteFile*> indexed_files(std::string_view json, const std::string& source,
                                             const std::vector<RemoteFile>& files);

}  // namespace aeshna::hub
