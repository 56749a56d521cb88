#pragma once
#include <filesystem>
#include <functional>

namespace aeshna {

/// An exclusive lock on a file, which is made if it is not there, among the processes of a machine (and among locks of one process). The system
/// lets go of it when the process ends in whatever way. On network file systems it is worth what the file system makes of it.
class FileLock {
 public:
  /// Waits while another has it; `on_wait` is called once when it has to. Error(Io) naming the file.
  explicit FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait = {});
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
#ifdef _WIN32
  void* file_ = nullptr;
#else
  int file_ = -1;
#endif
};

}  // namespace aeshna
