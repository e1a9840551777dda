#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "proto/text/program_text.h"
#include "tools/program_dot.h"
#include "tools/program_json.h"
#include "tools/weft_commands.h"

namespace weft {
namespace {

constexpr char kCommand[] = "weft show";

struct Options {
  std::string file;
  std::string format = "text";
  bool is_short = false;
};

void PrintToStdout(absl::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

absl::Status Show(const Options& options) {
  WEFT_ASSIGN_OR_RETURN(const Program program, ReadProgramOrExplain(options.file));
  if (options.format == "json") {
    PrintToStdout(MessageToJson(program.ToProto()));
  } else if (options.format == "dot") {
    const absl::StatusOr<std::string> dot = ProgramToDot(program);
    WEFT_RETURN_IF_ERROR(Annotate(options.file, dot.status()));
    PrintToStdout(*dot);
  } else {
    PrintProgram(program, options.is_short ? PrintOptions::Short() : PrintOptions(), PrintToStdout);
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
         "text: one op per line, as in .prog files; dot: a drawing of a small program for Graphviz "
         "(weft view draws large ones); json: every "
         "field, including unknown ones")
      ->check(CLI::IsMember({"text", "dot", "json"}))
      ->capture_default_str();
  app->add_flag("--short", options->is_short,
                "Omit what does not affect the computation: op_callstack, op_namescope, op_device, "
                "with_quant_attr, switches of Paddle's back ends, op versions, explicit defaults");
  app->callback([options] {
    Require(!options->is_short || options->format == "text", "--short",
            "works with --format text only");
  });
  app->footer("Example:\n  weft show main.pb --format dot | dot -Tsvg > main.svg");
  return {app, [options] { return FinishCommand(kCommand, Show(*options)); }};
}

}  // namespace weft
