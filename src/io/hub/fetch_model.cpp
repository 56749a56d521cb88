// The cache of downloaded models, and what of a model has to be fetched into it. docs/hub.md has the layout.
#include <algorithm>
#include <system_error>

#include <nlohmann/json.hpp>

#include "aeshna/hub.h"
#include "base/byte_reader.h"
#include "base/env.h"
#include "base/fail.h"
#include "base/file_lock.h"
#include "base/make_folder.h"
#include "io/hub/download.h"
#include "io/json_field.h"

namespace aeshna {
namespace hub {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxPages = 200;
constexpr std::uint64_t kMaxListing = 64 << 20;

std::string read_text(const fs::path& path) {
  const std::vector<std::byte> bytes = read_file(path, kMaxListing);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A hub's name as that of a folder.
std::string folder_of(const Origin& origin) {
  std::string name = origin.host;
  if (origin.port != (origin.scheme == "https" ? "443" : "80")) name += "_" + origin.port;
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '[' || c == ']'; }, '_');
  return name;
}

fs::path cache_folder(const HubOptions& options) {
  if (!options.cache.empty()) return options.cache;
  const fs::path cache = env_cache_dir();
  if (cache.empty())
    fail(ErrorCode::InvalidArgument,
         "models of the hub need a cache directory, and AESHNA_CACHE_DIR says there is none");
  return cache / "hub";
}

/// The URL of the next page, from a header as in `<https://...>; rel="next"`; "": this was the last.
std::string next_page(std::string_view link) {
  while (!link.empty()) {
    const std::size_t open = link.find('<'), close = link.find('>', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return "";
    const std::size_t end = std::min(link.find(',', close), link.size());
    if (link.substr(close, end - close).contains("rel=\"next\""))
      return std::string(link.substr(open + 1, close - open - 1));
    link.remove_prefix(end);
  }
  return "";
}

class Fetch {
 public:
  Fetch(ModelName name, const HubOptions& options)
      : name_(std::move(name)),
        options_(options),
        offline_(options.offline || env_offline()),
        client_(options),
        folder_(cache_folder(options) / folder_of(client_.origin()) / name_.model) {}

  fs::path run() {
    commit_ = offline_ ? cached_commit() : current_commit();
    files_ = listing();
    const Selection selection = select_files(name_, files_);
    ensure(selection.files);
    if (selection.index != nullptr) {
      const fs::path index = path_of(*selection.index);
      ensure(indexed_files(read_text(index), index.string(), files_));
    }
    return selection.result.empty() ? folder_ / commit_ : folder_ / commit_ / selection.result;
  }

 private:
  void note(std::string_view text) const {
    if (options_.on_note) options_.on_note(formatted("{}: {}", name_.model, text));
  }

  // ---- which commit

  fs::path ref_path() const { return folder_ / "refs" / url_escaped(name_.revision, false); }

  /// What the revision was when the hub was last asked; "": it never was.
  std::string remembered() const {
    if (name_.is_commit()) return name_.revision;
    std::error_code error;
    if (!fs::exists(ref_path(), error)) return "";
    const std::string commit = read_text(ref_path());
    return is_commit(commit) ? commit : "";
  }

  std::string cached_commit() const {
    const std::string commit = remembered();
    if (commit.empty() || !has_listing(commit)) {
      fail(ErrorCode::NotFound,
           "{}: revision '{}' is not in the cache ({}), and this is offline (--offline, AESHNA_OFFLINE)", name_.model,
           name_.revision, folder_.string());
    }
    note(formatted("offline, using commit {} in the cache", commit.substr(0, 12)));
    return commit;
  }

  std::string current_commit() {
    const std::string before = remembered();
    const bool cached = !before.empty() && has_listing(before);
    if (name_.is_commit() && cached) return before;  // a commit never changes
    const std::string url =
        formatted("{}/api/models/{}/revision/{}", client_.url(), name_.model, url_escaped(name_.revision, false));
    // With a copy at hand nobody waits long.
    const Client::Answer answer =
        client_.text(url, name_.model, cached ? 1 : std::min(options_.attempts, 3), cached ? 10 : 60);
    if (!answer.reached) {
      const std::string reason = reason_of(answer.reply);
      if (!cached) {
        fail(ErrorCode::Io, "{}: {} cannot be reached ({}), and revision '{}' is not in the cache ({})", name_.model,
             client_.url(), reason, name_.revision, folder_.string());
      }
      note(formatted("{} cannot be reached ({}), using commit {} in the cache", client_.url(), reason,
                     before.substr(0, 12)));
      return before;
    }
    const nlohmann::json value = parse_json(answer.text, url);
    const JsonField top(url, value);
    const std::string commit = top.is_object() ? top.at("sha").text() : "";
    if (!is_commit(commit)) fail(ErrorCode::CorruptFile, "{}: the answer names no commit", url);
    if (commit != before) {
      make_folder(ref_path().parent_path());
      write_file_atomic(ref_path(), commit);
    }
    return commit;
  }

  // ---- what is in it

  fs::path listing_path(const std::string& commit) const { return folder_ / (commit + ".json"); }
  bool has_listing(const std::string& commit) const {
    std::error_code error;
    return fs::exists(listing_path(commit), error);
  }

  std::vector<RemoteFile> listing() {
    const fs::path path = listing_path(commit_);
    if (has_listing(commit_)) return parse_listing(read_text(path), path.string());
    std::vector<RemoteFile> files;
    std::string url = formatted("{}/api/models/{}/tree/{}?recursive=true", client_.url(), name_.model, commit_);
    for (int page = 0; !url.empty(); ++page) {
      if (page == kMaxPages)
        fail(ErrorCode::LimitExceeded, "{}: its list of files has more than {} pages", name_.model, kMaxPages);
      const Client::Answer answer = client_.text(url, name_.model, options_.attempts, 60);
      if (!answer.reached) client_.refuse(answer.reply, name_.model, url);
      parse_tree(answer.text, url, files);
      std::string next = next_page(answer.reply.header("link"));
      if (!next.empty() && origin_of(next) != client_.origin())
        fail(ErrorCode::CorruptFile, "{}: the next page of its list of files is said to be elsewhere", name_.model);
      url = std::move(next);
    }
    make_folder(folder_);
    write_file_atomic(path, print_listing(files));
    return files;
  }

  // ---- the files

  fs::path path_of(const RemoteFile& file) const { return folder_ / commit_ / file.path; }

  /// A file gets its name when it is whole and was compared with its hash.
  static bool is_there(const fs::path& path, const RemoteFile& file) {
    std::error_code error;
    return fs::is_regular_file(path, error) && fs::file_size(path, error) == file.size && !error;
  }

  void ensure(const std::vector<const RemoteFile*>& files) {
    std::vector<const RemoteFile*> missing;
    const auto look = [&] {
      missing.clear();
      for (const RemoteFile* file : files)
        if (!is_there(path_of(*file), *file)) missing.push_back(file);
    };
    look();
    if (missing.empty()) return;
    if (offline_) {
      fail(ErrorCode::NotFound, "{}: '{}' is not in the cache ({}), and this is offline (--offline, AESHNA_OFFLINE)",
           name_.model, missing.front()->path, (folder_ / commit_).string());
    }
    make_folder(folder_ / "partial");
    const FileLock lock(folder_ / "lock", [&] { note("waiting for another process that downloads it"); });
    look();  // that one may have fetched them
    check_space(missing);
    HubProgress progress;
    for (const RemoteFile* file : missing) progress.total += file->size;
    std::uint64_t before = 0;
    for (const RemoteFile* file : missing) {
      const fs::path target = path_of(*file);
      make_folder(target.parent_path());
      progress.file = file->path;
      const std::string url =
          formatted("{}/{}/resolve/{}/{}", client_.url(), name_.model, commit_, url_escaped(file->path, true));
      if (!link_from_another_commit(*file, target)) {
        download(client_, options_, name_.model, url, *file, partial_path(*file), target, [&](std::uint64_t bytes) {
          progress.done = before + bytes;
          if (options_.on_progress) options_.on_progress(progress);
        });
      }
      before += file->size;
    }
  }

  fs::path partial_path(const RemoteFile& file) const { return folder_ / "partial" / file.hash; }

  void check_space(const std::vector<const RemoteFile*>& files) const {
    std::uint64_t needed = 0;
    for (const RemoteFile* file : files) {
      std::error_code error;
      const std::uint64_t there = fs::file_size(partial_path(*file), error);
      needed += file->size - (error ? 0 : std::min(there, file->size));
    }
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    if (error || space.available >= needed) return;
    fail(ErrorCode::Io,
         "{}: {} bytes are to be downloaded, and {} are free in '{}' (AESHNA_CACHE_DIR may name another folder)",
         name_.model, needed, space.available, folder_.string());
  }

  /// Large files rarely change from commit to commit. False where there is none, or where the file system has no links.
  bool link_from_another_commit(const RemoteFile& wanted, const fs::path& target) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      const fs::path& path = entry.path();
      const std::string commit = path.stem().string();
      if (path.extension() != ".json" || !is_commit(commit) || commit == commit_) continue;
      for (const RemoteFile& file : parse_listing(read_text(path), path.string())) {
        const fs::path other = folder_ / commit / file.path;
        if (file.hash != wanted.hash || file.lfs != wanted.lfs || !unsafe_path(file.path).empty() ||
            !is_there(other, wanted))
          continue;
        fs::remove(target, error);
        fs::create_hard_link(other, target, error);
        if (!error) return true;
      }
    }
    return false;
  }

  ModelName name_;
  const HubOptions& options_;
  bool offline_;
  Client client_;
  fs::path folder_;
  std::string commit_;
  std::vector<RemoteFile> files_;
};

}  // namespace
}  // namespace hub

std::filesystem::path fetch_model(std::string_view name, const HubOptions& options) {
  return hub::Fetch(hub::parse_model_name(name), options).run();
}

}  // namespace aeshna
