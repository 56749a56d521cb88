#include "support/run_program.h"

#ifndef _WIN32
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "support/temp_dir.h"

namespace aeshna::test {

ProgramResult run_program(std::vector<std::string> arguments, const std::filesystem::path& folder,
                          const std::string& stop_at, const std::filesystem::path& program) {
  const TempDir dir;
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const std::filesystem::path errors = dir / "stderr";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr || ::chdir(folder.c_str()) != 0) ::_exit(126);
    std::string name = program.filename().string();
    std::vector<char*> argv = {name.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  ProgramResult result;
  bool sent = stop_at.empty();
  char block[4096];
  for (ssize_t count; (count = ::read(pipe_ends[0], block, sizeof block)) > 0;) {
    result.out.append(block, static_cast<std::size_t>(count));
    if (!sent && result.out.find(stop_at) != std::string::npos) {
      ::kill(pid, SIGINT);
      sent = true;
    }
  }
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result.err = read_text(errors);
  return result;
}

}  // namespace aeshna::test
#endif
