#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "io/hub/client.h"
#include "io/hub/repository.h"

namespace aeshna::hub {

/// Fetches one file to `target`. What is there of it lies in `partial`, whose name holds the hash, so that it can only be of the same content: it
/// is gone on from, after a cut or in a later run. The target appears when its size and its hash are the listed ones. `on_bytes` gets the number
/// of bytes that are there. Errors: those of Client::refuse; Io (no connection, a full disk), CorruptFile (what came is something else).
void download(Client& client, const HubOptions& options, const std::string& model, const std::string& url,
              const RemoteFile& file, const std::filesystem::path& partial, const std::filesystem::path& target,
              const std::function<void(std::uint64_t)>& on_bytes);

}  // namespace aeshna::hub
