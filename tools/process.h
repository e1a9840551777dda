// Runs a program as a user would, for tests.
#ifndef WEFT_TOOLS_PROCESS_H_
#define WEFT_TOOLS_PROCESS_H_

#include <cstdint>
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

// Starts args[0] (a path, not searched for) with the given standard input, and waits for its end.
// Output goes through files, so its size is unlimited.
ProcessResult RunProcess(const std::vector<std::string>& args, const std::string& input = "");

}  // namespace weft::testing

#endif  // WEFT_TOOLS_PROCESS_H_
