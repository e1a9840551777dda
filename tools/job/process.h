// Runs a program as a user would, for tests.
#ifndef WEFT_TOOLS_JOB_PROCESS_H_
#define WEFT_TOOLS_JOB_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace weft::testing {

struct ProcessResult {
  int status = -1;  // exit status; 128 + the signal that ended it; -1: could not be started
  std::string out;
  std::string err;
  // What it had in memory at most; no less than what the caller had when it started the process.
  int64_t peak_bytes = 0;
};

// A running program. Output goes through files, so its size is unlimited.
class Process {
 public:
  // Starts args[0] (a path, not searched for) with the given standard input. SIGINT and SIGTERM
  // have their default actions, also where the test ignores them.
  explicit Process(const std::vector<std::string>& args, const std::string& input = "");
  ~Process();  // kills it, if nobody has waited
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }  // until Wait
  void Signal(int signal);
  // Whether it has not ended yet.
  bool IsRunning();
  // Waits for its end. Call it once.
  ProcessResult Wait();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  static File ScratchFile();

  const File in_, out_, err_;
  pid_t pid_ = 0;  // 0: not started, or waited for
};

// Starts a program and waits for its end.
ProcessResult RunProcess(const std::vector<std::string>& args, const std::string& input = "");

}  // namespace weft::testing

#endif  // WEFT_TOOLS_JOB_PROCESS_H_
