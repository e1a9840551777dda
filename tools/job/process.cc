#include "tools/job/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char** environ;

namespace weft::testing {
namespace {

std::string Contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char chunk[4096];
  while (const size_t n = std::fread(chunk, 1, sizeof(chunk), file)) text.append(chunk, n);
  return text;
}

}  // namespace

// An unnamed file for a process's input or output.
Process::File Process::ScratchFile() {
  File file(std::tmpfile(), std::fclose);
  if (file == nullptr) std::abort();
  return file;
}

Process::Process(const std::vector<std::string>& args, const std::string& input)
    : in_(ScratchFile()), out_(ScratchFile()), err_(ScratchFile()) {
  if (std::fwrite(input.data(), 1, input.size(), in_.get()) != input.size()) std::abort();
  std::rewind(in_.get());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(in_.get()), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(out_.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err_.get()), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ) != 0) pid_ = 0;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
}

Process::~Process() {
  if (pid_ == 0) return;
  Signal(SIGKILL);
  Wait();
}

void Process::Signal(int signal) {
  if (pid_ != 0) kill(pid_, signal);
}

bool Process::IsRunning() {
  siginfo_t info = {};
  return pid_ != 0 && waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

ProcessResult Process::Wait() {
  ProcessResult result;
  if (pid_ == 0) return result;
  int status = 0;
  rusage usage;
  while (wait4(pid_, &status, 0, &usage) < 0) {
  }
  pid_ = 0;
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.peak_bytes = int64_t{usage.ru_maxrss} * 1024;
  result.out = Contents(out_.get());
  result.err = Contents(err_.get());
  return result;
}

ProcessResult RunProcess(const std::vector<std::string>& args, const std::string& input) {
  return Process(args, input).Wait();
}

}  // namespace weft::testing
