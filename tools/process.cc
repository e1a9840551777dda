#include "tools/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char** environ;

namespace weft::testing {
namespace {

// An unnamed file for a process's input or output.
class ScratchFile {
 public:
  ScratchFile() {
    const char* dir = std::getenv("TEST_TMPDIR");
    std::string path = std::string(dir == nullptr ? "/tmp" : dir) + "/processXXXXXX";
    fd_ = mkostemp(&path[0], O_CLOEXEC);
    if (fd_ < 0) std::abort();
    unlink(path.c_str());
  }
  ~ScratchFile() { close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int fd() const { return fd_; }

  void Write(const std::string& text) {
    if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
    lseek(fd_, 0, SEEK_SET);
  }

  std::string Read() {
    lseek(fd_, 0, SEEK_SET);
    std::string text;
    char chunk[4096];
    ssize_t n;
    while ((n = read(fd_, chunk, sizeof(chunk))) > 0) text.append(chunk, n);
    return text;
  }

 private:
  int fd_;
};

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& args, const std::string& input) {
  ScratchFile in, out, err;
  in.Write(input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.fd(), STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);

  ProcessResult result;
  pid_t pid = 0;
  const bool started = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  if (!started) return result;
  int status = 0;
  rusage usage;
  while (wait4(pid, &status, 0, &usage) < 0) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  result.out = out.Read();
  result.err = err.Read();
  return result;
}

}  // namespace weft::testing
