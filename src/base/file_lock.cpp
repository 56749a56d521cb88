#include "base/file_lock.h"

#include <cerrno>
#include <system_error>

#ifdef _WIN32
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#endif

#include "base/fail.h"

namespace aeshna {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, int error) {
  fail(ErrorCode::Io, "cannot lock '{}': {}", path.string(), std::system_category().message(error));
}

}  // namespace

#ifdef _WIN32

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait) {
  file_ = ::CreateFileW(path.c_str(), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr,
                        OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file_ == INVALID_HANDLE_VALUE) refuse(path, static_cast<int>(::GetLastError()));
  OVERLAPPED at{};
  if (::LockFileEx(file_, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at) != 0) return;
  try {
    if (on_wait) on_wait();
  } catch (...) {
    ::CloseHandle(file_);
    throw;
  }
  if (::LockFileEx(file_, LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &at) != 0) return;
  const int error = static_cast<int>(::GetLastError());
  ::CloseHandle(file_);
  refuse(path, error);
}

FileLock::~FileLock() { ::CloseHandle(file_); }

#else

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) refuse(path, errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  int error = errno;
  if (error == EWOULDBLOCK) {
    try {
      if (on_wait) on_wait();
    } catch (...) {
      ::close(file_);
      throw;
    }
    do {
      error = ::flock(file_, LOCK_EX) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == 0) return;
  }
  ::close(file_);
  refuse(path, error);
}

FileLock::~FileLock() { ::close(file_); }

#endif

}  // namespace aeshna
