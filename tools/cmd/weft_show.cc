#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/similar_name.h"
#include "base/status_macros.h"
#include "proto/all_ops.h"
#include "proto/op_role.h"
#include "proto/text/program_text.h"
#include "tools/cmd/weft_commands.h"
#include "tools/flags/shown_program.h"
#include "tools/inspect/program_dot.h"
#include "tools/inspect/program_json.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft show";

void PrintToStdout(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

struct Options {
  std::string file;
  std::string format = "text";
  bool is_full = false;
  bool is_short = false;         // the default
  std::vector<std::string> ops;  // positions and types
  std::vector<std::string> roles;
  std::vector<std::string> vars;  // that ops read or write

  bool selects_ops() const { return !ops.empty() || !roles.empty() || !vars.empty(); }
};

bool Has(const std::vector<std::string>& words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Whether every filter that is given selects the op.
bool IsSelected(const Options& options, const Op& op) {
  const auto is_named = [&](Symbol arg) { return Has(options.vars, op.program().name(arg)); };
  const std::vector<std::string> roles = absl::StrSplit(RoleName(op.role()), '|');
  return (options.ops.empty() || Has(options.ops, op.type()) ||
          Has(options.ops, absl::StrCat(op.position()))) &&
         (options.roles.empty() ||
          absl::c_any_of(roles, [&](const auto& role) { return Has(options.roles, role); })) &&
         (options.vars.empty() || absl::c_any_of(op.args(), is_named));
}

// For readers: what determines the computation, with the positions by which messages name ops.
// Returns the number of ops and variables that are shown.
int64_t PrintShort(const Program& program, const Options& options) {
  const PrintOptions print = PrintOptions::Short();
  int64_t shown = 0;
  for (int b = 0; b < program.num_blocks(); ++b) {
    const Block block = program.block(b);
    std::string text = absl::StrCat("block ", b);
    if (b > 0) absl::StrAppend(&text, " of block ", block.parent_idx());
    text += "\n";
    bool has_lines = !options.selects_ops();
    const auto add_line = [&](absl::string_view line) {
      absl::StrAppend(&text, "  ", line, "\n");
      has_lines = true;
      ++shown;
      if (text.size() < 65536) return;
      PrintToStdout(text);
      text.clear();
    };
    for (VarId id : block.vars()) {
      const Var var = program.var(id);
      if (!options.selects_ops() || Has(options.vars, var.name())) add_line(VarText(var, print));
    }
    for (OpId id : block.ops()) {
      const Op op = program.op(id);
      if (!IsSelected(options, op)) continue;
      add_line(absl::StrCat(op.position(), ": ", OpText(op, print)));
    }
    if (has_lines) PrintToStdout(text);
  }
  return shown;
}

// Of the words of --op and --var, the first that the program does not have.
absl::Status CheckNames(const Program& program, const Options& options) {
  std::set<absl::string_view> types;
  std::vector<absl::string_view> vars;
  for (const Op& op : AllOps(program)) types.insert(op.type());
  for (const Var& var : AllVars(program)) vars.push_back(var.name());
  for (const std::string& op : options.ops) {
    if (absl::c_all_of(op, absl::ascii_isdigit) || types.count(op) > 0) continue;
    return absl::NotFoundError(
        absl::StrCat("no op is a ", op, DidYouMean(op, {types.begin(), types.end()})));
  }
  for (const std::string& var : options.vars) {
    if (program.FindSymbol(var).valid()) continue;
    return absl::NotFoundError(absl::StrCat("no variable is named ", var, DidYouMean(var, vars)));
  }
  return absl::NotFoundError("no op has all that is asked for");
}

absl::Status Show(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const ReadableProgram read, ReadProgramToShow(kCommand, options.file));
  const Program& program = read.program;
  if (options.format == "json") {
    PrintToStdout(MessageToJson(program.ToProto()));
  } else if (options.format == "dot") {
    const absl::StatusOr<std::string> dot = ProgramToDot(program);
    WEFT_RETURN_IF_ERROR(Annotate(options.file, dot.status()));
    PrintToStdout(*dot);
  } else if (options.is_full) {
    PrintProgram(program, PrintOptions(), PrintToStdout);
  } else if (PrintShort(program, options) == 0 && options.selects_ops()) {
    return Annotate(options.file, CheckNames(program, options));
  }
  return absl::OkStatus();
}

}  // namespace

Subcommand AddShow(CLI::App* weft) {
  CLI::App* app = weft->add_subcommand("show", "Prints or draws a program.");
  auto options = std::make_shared<Options>();
  AddOption(*app, "file", "FILE", options->file, "The program; - is standard input")->required();
  app->add_option(
         "--format", options->format,
         "text: one op per line, with its position, by which messages name it; dot: a drawing of a "
         "small program for Graphviz (weft view draws large ones); json: every field, including "
         "unknown ones")
      ->check(CLI::IsMember({"text", "dot", "json"}))
      ->capture_default_str();
  app->add_flag("--full", options->is_full,
                "Print program text that reads back as the same program, without positions; also "
                "what does not affect the computation: op_callstack, op_namescope, op_device, "
                "with_quant_attr, switches of Paddle's back ends, op versions, explicit defaults");
  app->add_flag("--short", options->is_short, "Default. Hide what --full adds")->excludes("--full");
  const auto add_filter = [app](const char* flag, const char* type, auto& words, const char* help) {
    AddOption(*app, flag, type, words, help)->delimiter(',')->allow_extra_args(false);
  };
  add_filter("--op", "17,mul,...", options->ops, "Only ops at these positions or of these types");
  add_filter("--role", "R,...", options->roles,
             "Only ops of these roles: forward, backward, optimize, loss, lr_sched, ...");
  add_filter("--var", "X,...", options->vars,
             "Only ops that read or write these variables, and their declarations");
  app->callback([options] {
    Require(!options->is_full || options->format == "text", "--full",
            "works with --format text only");
    Require(!options->selects_ops() || (options->format == "text" && !options->is_full),
            "--op, --role, --var", "work with --format text only, without --full");
  });
  app->footer(
      "Example:\n  weft show main.pb --format dot | dot -Tsvg > main.svg\n"
      "  weft show main.pb --var fc_0.w_0");
  return {app, [options] { return FinishCommand(kCommand, Show(*options)); }};
}

}  // namespace weft
