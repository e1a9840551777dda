// What stands behind the handles of weft.h.
#ifndef WEFT_C_HANDLES_H_
#define WEFT_C_HANDLES_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "c/weft.h"
#include "proto/program.h"
#include "tools/flags/said.h"

struct weft_text {
  std::string bytes;
};

struct weft_program {
  weft::Program program;
  std::string name;  // of its file, in messages
};

struct weft_options {
  // What help says of an option.
  struct Info {
    std::string name, type, default_value, help;
    bool is_flag = false, is_list = false;
  };

  std::string command;
  std::vector<Info> infos;
  std::vector<std::string> arguments;  // "--nranks=2"
  std::function<void(const char* pass)> progress;
};

namespace weft::c {

// Runs what a function of the interface does: an error, or an exception, becomes its result.
weft_status* Guard(absl::FunctionRef<absl::Status()> run);

// Parses `options`, which may be null, and after them `more`: flags, "--", and positional
// arguments. InvalidArgument for options of another command, and as ParseArguments.
absl::Status Parse(CLI::App& app, absl::string_view command, const weft_options* options,
                   std::vector<std::string> more);

// A message of the tools as callers of the interface read it: option nranks, not --nranks. Flags
// stay that are of a shell command, such as weft run --profile. Who names a program as a flag reads
// it without the dashes.
std::string WithOptions(absl::string_view message);

// What messages call a program: its name, or `other` if that is empty. Names are no arguments of
// Parse, which would take some for flags or lists: placeholders are, and flags get names
// afterwards.
std::string NameOf(const weft_program& program, absl::string_view other);

// The program that makes the values before the first step (StartupOf), or none. Errors begin with
// its name, or `other`.
absl::StatusOr<absl::optional<Program>> StartupIfGiven(const weft_program* startup,
                                                       absl::string_view other);

// Messages as weft.h has them.
class Messages {
 public:
  void Set(std::vector<Said> said);
  const std::vector<weft_message>& all() const { return messages_; }

 private:
  std::vector<std::string> texts_;
  std::vector<weft_message> messages_;
};

weft_text* NewText(std::string bytes);

// A copy, which shares the bytes, or null.
weft_program* NewProgram(Program program, std::string name);

}  // namespace weft::c

#endif  // WEFT_C_HANDLES_H_
