#include "tools/process.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

extern char** environ;

namespace weft::testing {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// An unnamed file for a process's input or output.
File ScratchFile() {
  File file(std::tmpfile(), std::fclose);
  if (file == nullptr) std::abort();
  return file;
}

std::string Contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char chunk[4096];
  while (const size_t n = std::fread(chunk, 1, sizeof(chunk), file)) text.append(chunk, n);
  return text;
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& args, const std::string& input) {
  const File in = ScratchFile(), out = ScratchFile(), err = ScratchFile();
  if (std::fwrite(input.data(), 1, input.size(), in.get()) != input.size()) std::abort();
  std::rewind(in.get());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
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
  result.out = Contents(out.get());
  result.err = Contents(err.get());
  return result;
}

}  // namespace weft::testing
