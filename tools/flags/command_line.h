// Shared by the command line tools: exit statuses, the form of errors, parsing with CLI11.
//
//   int main(int argc, char** argv) {
//     CLI::App app("Rewrites training programs.", "transpile");
//     app.footer("Example:\n  transpile --mode grad_allreduce in.pb out.pb");
//     app.add_option("--mode", options.mode, "...");
//     if (absl::optional<int> status = ParseCommandLine(app, argc, argv)) return *status;
//     return FinishCommand("transpile", Transpile(options));
//   }
//
// Flags take "--flag value" and "--flag=value". CLI11 finds errors of a single flag (add_option's
// types, ->check, ->needs, ->excludes, ->required). For errors between flags, call Require from
// app.callback(...). Both end in exit status 2.
#ifndef WEFT_TOOLS_FLAGS_COMMAND_LINE_H_
#define WEFT_TOOLS_FLAGS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/program.h"

namespace weft {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;  // the input is bad, or a check failed
inline constexpr int kExitUsage = 2;   // the command line is wrong

// Prints "<command>: error: <message>" to stderr as one line. Further lines of the message follow,
// indented. Control characters are escaped, and options get their flags (WithFlags).
void PrintError(absl::string_view command, absl::string_view message);
void PrintWarning(absl::string_view command, absl::string_view message);

// Parses a command line, and adds --version to it. None: continue. Otherwise the exit status: 0
// after printing --help or --version, 2 after printing a usage error under the name of its
// subcommand.
//
// From this call on, a signal that ends the process (SIGHUP, SIGINT, SIGPIPE, SIGTERM) removes
// temporary files of outputs; a file that grows too large is an error of its write (no SIGXFSZ);
// and a mapped file that shrinks is an error of the process, with exit status 1 (no SIGBUS).
//
// `before_help` runs before --help is printed, when flags have their values: it may choose what is
// shown.
absl::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv,
                                     const std::function<void()>& before_help = nullptr);

// Parses arguments of a command in a process that is not its own. Prints nothing, and leaves
// signals as they are. InvalidArgument, with the message of ParseCommandLine, for arguments that
// are wrong.
absl::Status ParseArguments(CLI::App& app, std::vector<std::string> arguments);

// Leaves all flags of a command but `shown` out of --help, and adds --help_all, which has all of
// them. Throws CLI::OptionNotFound for a name that is no flag. Call it after the flags are added.
void ShowInHelp(CLI::App& app, absl::Span<const char* const> shown);
// The group, as CLI11 calls it, of the flags that --help leaves out.
inline constexpr char kOtherFlags[] = "Other flags";

// For ->check: a number for which `is_good` (false for NaN, as comparisons are), an integer from
// `min` to `max`. Messages: "expected <expected>, found ...", "expected an integer from ...".
CLI::Validator NumberThat(bool (*is_good)(double), std::string expected);
CLI::Validator IntegerFrom(int64_t min, uint64_t max);

// Adds an option whose value the help shows as `type`.
template <typename T>
CLI::Option* AddOption(CLI::App& app, const char* flag, const char* type, T& value,
                       const char* help) {
  return app.add_option(flag, value, help)->type_name(type);
}

// Adds an option that takes an integer from `min` to `max`.
template <typename T>
CLI::Option* AddInteger(CLI::App& app, const char* flag, T& value, int64_t min, uint64_t max,
                        const char* help) {
  return AddOption(app, flag, "N", value, help)->check(IntegerFrom(min, max));
}

// Throws a usage error of `flag` unless `holds`.
void Require(bool holds, absl::string_view flag, absl::string_view message);

// Throws a usage error if several inputs, (flag, path), are standard input, which can be read once.
void CheckStandardInput(absl::Span<const std::pair<const char*, std::string>> inputs);

// Ends a command: prints the error, if it failed, and checks that standard output was written.
// Returns `done` on success, else `failed`.
int FinishCommand(absl::string_view command, const absl::Status& status, int done = kExitDone,
                  int failed = kExitFailed);

// A subcommand: its options, and the function that runs it after parsing.
struct Subcommand {
  CLI::App* app;
  std::function<int()> run;  // returns the exit status
  int failed = kExitFailed;  // the exit status of errors
};

// Runs a tool. Without memory, or where the system starts no thread, prints that, removes temporary
// files of outputs, and returns `failed` as it is then, or exits with it where the exception cannot
// be caught. Call it once.
int RunTool(absl::string_view command, const int& failed, absl::FunctionRef<int()> run);

// ReadProgram, with the path before the message: "in.pb: op 17 (mul): ...".
absl::StatusOr<Program> ReadProgramOrExplain(const std::string& path);
// None for an empty path.
absl::StatusOr<absl::optional<Program>> ReadProgramIfGiven(const std::string& path);
// The same of a startup program: ReadStartupProgram.
absl::StatusOr<absl::optional<Program>> ReadStartupIfGiven(const std::string& path);

// Checks before long work that all outputs can be written: a file can be created at each path, none
// is one of the inputs, and no two are the same. Empty paths are skipped; "-" is standard input and
// output. The error names the path.
absl::Status CheckOutputs(absl::Span<const std::string> inputs,
                          absl::Span<const std::string> outputs);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_COMMAND_LINE_H_
