#include "tools/flags/command_line.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/mapped_files.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "base/temporary_files.h"
#include "base/version.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/formats/program_file.h"
#include "tools/flags/flag_names.h"
#include "tools/flags/said.h"
#include "tools/inspect/wrap_text.h"

namespace weft {
namespace {

// One line, or several with the others indented: control characters in names or files must not
// break the form.
std::string Escape(absl::string_view message) {
  std::string text;
  for (const char c : message) {
    const unsigned char byte = c;
    if (c == '\n') {
      text += "\n  ";
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&text, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      text += c;
    }
  }
  return text;
}

void Print(absl::string_view command, absl::string_view kind, absl::string_view message) {
  const std::string line =
      absl::StrCat(command, ": ", kind, ": ", Escape(WithFlags(message)), "\n");
  std::fflush(stdout);  // keeps the order of stdout and stderr
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// "weft run": the tool and the named subcommands.
std::string CommandName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* sub : app.get_subcommands()) absl::StrAppend(&name, " ", CommandName(*sub));
  return name;
}

constexpr size_t kHelpWidth = 72;  // of the texts beside flags

// Wraps lines of help texts, which CLI11 does not.
class WrappingFormatter : public CLI::Formatter {
 public:
  WrappingFormatter() { column_width(28); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return WrapText(WithFlags(CLI::Formatter::make_option_desc(option)), kHelpWidth);
  }
};

void SetFormatter(CLI::App* app) {
  app->formatter(std::make_shared<WrappingFormatter>());
  for (CLI::App* sub : app->get_subcommands({})) SetFormatter(sub);
}

// Of the command that was parsed, whose name begins with `tools`.
void HideOtherFlags(CLI::App& app, absl::string_view tools) {
  const std::string name = absl::StrCat(tools, app.get_name());
  const std::vector<CLI::Option*> others =
      app.get_options([](const CLI::Option* option) { return option->get_group() == kOtherFlags; });
  for (CLI::Option* option : others) option->group("");
  if (!others.empty()) {
    app.footer(absl::StrCat("More flags: ", name, " --help_all\n\n", app.get_footer()));
  }
  for (CLI::App* sub : app.get_subcommands()) HideOtherFlags(*sub, name + " ");
}

// The names that an argument could have: flags of the command that was parsed, or its subcommands.
void AddNames(const CLI::App& app, std::vector<std::string>* names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names->push_back("--" + name);
  }
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  for (const CLI::App* sub : parsed) AddNames(*sub, names);
  if (!parsed.empty()) return;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names->push_back(sub->get_name());
  }
}

std::string Similar(const CLI::App& app, absl::string_view argument) {
  std::vector<std::string> names;
  AddNames(app, &names);
  // Without the value of --flag=value.
  if (absl::StartsWith(argument, "--")) argument = argument.substr(0, argument.find('='));
  return DidYouMean(argument, {names.begin(), names.end()});
}

// What the user of an unexpected argument may have meant.
std::string AdviceOn(const CLI::App& app, const std::string& argument) {
  std::string similar = Similar(app, argument);
  if (!similar.empty() || absl::StartsWith(argument, "-")) return similar;
  for (const CLI::App* sub : app.get_subcommands()) {
    // Of a subcommand that takes a command after --.
    if (absl::StrContains(sub->get_description(), " -- ")) return "; put -- before the command";
  }
  // The shell makes ab=1 ac=2 of a{b=1,c=2}.
  if (absl::StrContains(argument, '=')) return "; put quotes around what has { and }";
  return "";
}

std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error) {
  // CLI11 looks for missing arguments before unexpected ones: for "weft shwo", it would report that
  // a subcommand is required.
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty() && unknown[0] == "--") unknown.erase(unknown.begin());
  if (unknown.empty()) return error.what();
  return absl::StrCat("unexpected argument: ", unknown[0], AdviceOn(app, unknown[0]));
}

int PrintHelp(const CLI::App& app) {
  const std::string help = WithFlags(app.help());
  std::fwrite(help.data(), 1, help.size(), stdout);
  return FinishCommand(CommandName(app), absl::OkStatus());
}

bool IsSpecialFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// Ends the process as the signal would.
void EndBySignal(int number) {
  if (HoldSignal(number)) return;
  RemoveTemporaryFiles();
  signal(number, SIG_DFL);
  raise(number);
}

void RemoveTemporaryFilesOnSignals() {
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGTERM}) {
    struct sigaction action;
    // Keeps ignored signals ignored (nohup).
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = EndBySignal;
    sigaction(signal, &action, nullptr);
  }
}

// Why a write to standard output has failed first; 0: none has. Stdio only knows that one has.
int output_error = 0;

ssize_t WriteOutput(void*, const char* bytes, size_t size) {
  size_t written = 0;
  while (written < size) {
    const ssize_t n = write(STDOUT_FILENO, bytes + written, size - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && output_error == 0) output_error = errno;
    if (n < 0) break;
    written += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(written);
}

void KeepErrorOfOutput() {
  cookie_io_functions_t functions = {};
  functions.write = WriteOutput;
  std::FILE* const output = fopencookie(nullptr, "w", functions);
  if (output == nullptr) throw std::bad_alloc();
  if (isatty(STDOUT_FILENO) == 1) std::setvbuf(output, nullptr, _IOLBF, BUFSIZ);
  std::fflush(stdout);
  stdout = output;
}

// The tool that RunTool runs.
struct RunningTool {
  absl::string_view command;
  const int* failed = nullptr;
  std::terminate_handler terminate = nullptr;  // of the library
};
RunningTool running;

// Ends the tool at once. Takes no memory.
[[noreturn]] void EndTool(const char* cause, const char* detail = "") {
  std::fprintf(stderr, "%.*s: error: %s%s\n", static_cast<int>(running.command.size()),
               running.command.data(), cause, detail);
  RemoveTemporaryFiles();
  std::_Exit(*running.failed);
}

[[noreturn]] void EndWithoutMemory() { EndTool("out of memory"); }

// Of exceptions that nobody has caught, or that leave a destructor, a function that is noexcept, or
// a thread.
void EndOnException() {
  if (std::current_exception() == nullptr) running.terminate();
  try {
    throw;
  } catch (const std::bad_alloc&) {
    EndWithoutMemory();
  } catch (const std::system_error& error) {
    EndTool("cannot start a thread: ", error.what());
  } catch (...) {
    running.terminate();
  }
}

}  // namespace

void PrintError(absl::string_view command, absl::string_view message) {
  Print(command, "error", message);
}

void PrintWarning(absl::string_view command, absl::string_view message) {
  Print(command, "warning", message);
}

void Print(absl::string_view command, const Said& said) {
  if (said.names_command) return Print(command, SeverityName(said.severity), said.text);
  std::fprintf(stderr, "%s: %s\n", std::string(SeverityName(said.severity)).c_str(),
               WithFlags(said.text).c_str());
}

void ShowInHelp(CLI::App& app, absl::Span<const char* const> shown) {
  app.set_help_all_flag("--help_all", "Print all flags and exit");
  std::set<const CLI::Option*> kept = {app.get_help_ptr(), app.get_help_all_ptr()};
  for (const char* flag : shown) kept.insert(app.get_option(flag));
  for (CLI::Option* option : app.get_options([&](const CLI::Option* option) {
         return option->nonpositional() && kept.count(option) == 0;
       })) {
    option->group(kOtherFlags);
  }
}

int RunTool(absl::string_view command, const int& failed, absl::FunctionRef<int()> run) {
  running = {command, &failed, std::set_terminate(EndOnException)};
  std::set_new_handler(EndWithoutMemory);
  std::atexit(RemoveTemporaryFiles);  // libarchive ends a process that has no memory
  try {
    KeepErrorOfOutput();
    return run();
  } catch (...) {  // so that the destructors run
    EndOnException();
  }
  return failed;
}

absl::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv,
                                     const std::function<void()>& before_help) {
  // Debug builds of protobuf print every string that is not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  RemoveTemporaryFilesOnSignals();
  signal(SIGXFSZ, SIG_IGN);
  ReportShrunkFiles(app.get_name());
  SetFormatter(&app);
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " ", kVersion),
                       "Print the version and exit");
  try {
    app.parse(argc, argv);
    return absl::nullopt;
  } catch (const CLI::CallForHelp&) {
    if (before_help != nullptr) before_help();
    HideOtherFlags(app, "");
    return PrintHelp(app);
  } catch (const CLI::CallForAllHelp&) {
    return PrintHelp(app);
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return FinishCommand(app.get_name(), absl::OkStatus());
  } catch (const CLI::ParseError& error) {
    const std::string name = CommandName(app);
    PrintError(name, absl::StrCat(UsageMessage(app, error), " (see ", name, " --help)"));
    return kExitUsage;
  }
}

absl::Status ParseArguments(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 expects them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(UsageMessage(app, error));
  }
  return absl::OkStatus();
}

CLI::Validator NumberThat(bool (*is_good)(double), std::string expected) {
  const auto check = [is_good, expected = std::move(expected)](std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && is_good(value)) return "";
    return absl::StrCat("expected ", expected, ", found ", text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator IntegerFrom(int64_t min, uint64_t max) {
  const auto check = [min, max](std::string& text) -> std::string {
    absl::int128 value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) return "";
    return absl::StrCat("expected an integer from ", min, " to ", max, ", found ", text);
  };
  return CLI::Validator(check, "");
}

void Require(bool holds, absl::string_view flag, absl::string_view message) {
  if (!holds) throw CLI::ValidationError(std::string(flag), std::string(message));
}

void CheckStandardInput(absl::Span<const std::pair<const char*, std::string>> inputs) {
  absl::string_view reader;
  for (const auto& [flag, path] : inputs) {
    if (path != "-") continue;
    Require(reader.empty(), flag, absl::StrCat(reader, " already reads standard input"));
    reader = flag;
  }
}

int FinishCommand(absl::string_view command, const absl::Status& status, int done, int failed) {
  if (!status.ok()) {
    PrintError(command, status.message());
    return failed;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    const int error = output_error != 0 ? output_error : errno;  // not in a tool
    PrintError(command, absl::ErrnoToStatus(error, "standard output").message());
    return failed;
  }
  return done;
}

absl::StatusOr<Program> ReadProgramOrExplain(const std::string& path) {
  absl::StatusOr<Program> program = ReadProgram(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, program.status()));
  return program;
}

absl::StatusOr<absl::optional<Program>> ReadStartupIfGiven(const std::string& path) {
  if (path.empty()) return absl::nullopt;
  absl::StatusOr<Program> program = ReadStartupProgram(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, program.status()));
  return *std::move(program);
}

absl::StatusOr<absl::optional<Program>> ReadProgramIfGiven(const std::string& path) {
  if (path.empty()) return absl::nullopt;
  return ReadProgramOrExplain(path);
}

absl::Status CheckOutputs(absl::Span<const std::string> inputs,
                          absl::Span<const std::string> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = outputs[i];
    if (output.empty()) continue;
    for (size_t j = 0; j < i; ++j) {
      if (output == outputs[j] || (output != "-" && IsSameFile(output, outputs[j]))) {
        return absl::InvalidArgumentError(
            absl::StrCat(output, ": two outputs are written to this file"));
      }
    }
    // A device or a pipe may be opened only once, by its writer.
    if (output == "-" || IsSpecialFile(output)) continue;
    for (const std::string& input : inputs) {
      if (!input.empty() && input != "-" && IsSameFile(output, input)) {
        return absl::InvalidArgumentError(
            absl::StrCat(output, ": refusing to overwrite the input file ", input));
      }
    }
    WEFT_RETURN_IF_ERROR(Annotate(output, AtomicFile::Create(output).status()));
  }
  return absl::OkStatus();
}

}  // namespace weft
