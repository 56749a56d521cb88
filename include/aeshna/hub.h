#pragma once
// Models from the Hugging Face hub, or a server that speaks as it does. docs/hub.md describes names, cache and messages.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace aeshna {

struct HubProgress {
  std::string file;                   ///< the one that is being fetched
  std::uint64_t done = 0, total = 0;  ///< bytes of all files that had to be fetched
};

struct HubOptions {
  std::string url = {};              ///< default: AESHNA_HUB_URL, else https://huggingface.co
  std::string token = {};            ///< default: HF_TOKEN. Sent to the hub alone, never to where it redirects
  std::filesystem::path cache = {};  ///< default: the folder "hub" in the cache directory (AESHNA_CACHE_DIR)
  bool offline = false;              ///< or AESHNA_OFFLINE=1: what was fetched before, without asking anyone
  std::function<void(const HubProgress&)> on_progress = {};  ///< what it throws ends the download; it can be resumed
  std::function<void(std::string_view)> on_note = {};  ///< for people: which copy is used and why, what is waited for
  int attempts = 5;                                    ///< without progress, before a download has failed
  double retry_seconds = 0.5;  ///< before the second attempt, twice as long before each further one, 30 at most
  double stall_seconds = 30;   ///< without a byte, after which an attempt has failed
};

/// Fetches what is needed of a model, if it is not in the cache: `name` is "owner/model", "owner/model@revision" (a branch, a tag, a commit),
/// and either with ":file" for a single file. Of a repository with config.json and safetensors that is a folder as
/// LanguageModel::load_hugging_face reads it, of one with GGUF files alone the file; where several fit, one must be named. Every file is compared with
/// the SHA-256 (or git's SHA-1) that the hub lists for it and appears in the cache only whole. Returns the folder or the file.
///
/// Errors: InvalidArgument (a name, a URL, a token), NotFound (a model, a revision, a file; offline: what is not in the cache), Io (no connection, a
/// full disk), CorruptFile (bytes that are not the listed ones, a listing with names that no file may have), Unsupported (no libcurl; nothing in the
/// repository that Aeshna reads), LimitExceeded (an answer beyond all bounds).
std::filesystem::path fetch_model(std::string_view name, const HubOptions& options = {});

}  // namespace aeshna
