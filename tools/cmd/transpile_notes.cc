#include "tools/cmd/transpile_notes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/devices/device_placement.h"
#include "ops/analysis/training/lost_gradients.h"
#include "ops/schema/device_ops.h"
#include "ops/schema/op_schema.h"
#include "ops/schema/tensor_type.h"
#include "proto/all_ops.h"
#include "proto/feed_layout.h"
#include "proto/host_schedules.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/command_line.h"
#include "transpiler/modes.h"

namespace weft {
namespace {

// The mode of hints whose flag the mode at hand does not read.
constexpr char kOtherMode[] = "grad_allreduce";

// One line per pass, on a terminal.
void ShowReports(const std::vector<PassReport>& reports) {
  if (isatty(STDERR_FILENO) == 0) return;
  for (const PassReport& report : reports) {
    std::fprintf(stderr, "transpile: %-28s %s, %zu ops, %.3f s\n", report.pass.c_str(),
                 report.changed ? "changed" : "no change", report.main_ops, report.seconds);
  }
}

bool ComputesFloats(const Program& program, const Op& op) {
  const OpSchema* const schema = FindOpSchema(op.type());
  if (schema != nullptr && schema->algebra() == Algebra::kConstant) return false;  // as range
  return std::any_of(op.output_args().begin(), op.output_args().end(), [&](Symbol name) {
    const VarId var = program.block(0).FindVar(name);
    const absl::optional<TensorType> type =
        var.valid() ? DeclaredType(program.var(var)) : absl::nullopt;
    return type.has_value() && IsFloating(type->dtype);
  });
}

// A program on one device runs on one, whatever its ops say.
void NoteDevices(const TranspileFlags& flags, const Program& written, const Sink& sink) {
  if (IsOnTwoDevices(written)) return;
  int64_t on_host = 0, others = 0;
  for (OpId id : written.block(0).ops()) {
    const Op op = written.op(id);
    const bool is_on_host = absl::StrContains(op.bytes(), kHostDeviceName) &&
                            op.StringAttr(kOpDeviceAttr) == kHostDeviceName;
    // Paddle itself puts sizes, counters and conditions there.
    if (is_on_host && !ComputesFloats(written, op)) continue;
    ++(is_on_host ? on_host : others);
  }
  if (on_host == 0 || others == 0) return;
  sink.Note(absl::StrCat(flags.in, ": op_device of ", on_host,
                         " ops is \"cpu\", but all ops run on one device; --place op_device runs "
                         "them on the host"));
}

// In Paddle, the scheduler of the script that built the program set the rate.
void NoteSchedules(const TranspileFlags& flags, const Program& main, const Sink& sink) {
  if (!absl::EndsWith(flags.out, ".json")) return;
  for (const HostSchedule& schedule : FindHostSchedules(main)) {
    sink.Note(absl::StrCat(flags.out, ": `weft run` follows the schedule of ", schedule.variable,
                           "; in Paddle, a program that is loaded keeps the rate that it has: set "
                           "the variable before each step (docs/pir.md)"));
  }
}

// In Paddle, nothing says that ranks do not begin alike; `weft run` does.
void NoteStart(const TranspileFlags& flags, const Program& written, const Sink& sink) {
  const bool is_for_paddle =
      absl::EndsWith(flags.out, ".json") || flags.options.device_kind.has_value();
  if (!is_for_paddle || !flags.startup_in.empty() || !AnyHas(written, Trait::kCollective)) return;
  sink.Note(absl::StrCat(flags.out,
                         ": ranks must begin with equal parameters; a startup program "
                         "(--startup_in) broadcasts them"));
}

// A declared batch is that of one rank: it does not shrink when others share the work.
void NoteFixedBatch(const TranspileFlags& flags, const Program& written, const Setting& setting,
                    const Sink& sink) {
  if (!AnyHas(written, Trait::kCollective)) return;
  std::map<int64_t, std::vector<std::string>> names;  // by size of a rank's part
  for (const auto& [name, layout] : setting.feeds) {
    const VarId var = written.block(0).FindVar(name);
    if (!var.valid() || !layout.axis.has_value()) continue;
    const absl::optional<TensorType> type = DeclaredType(written.var(var));
    const auto axis = static_cast<size_t>(*layout.axis);
    if (!type.has_value() || axis >= type->dims.size() || type->dims[axis] < 0) continue;
    names[type->dims[axis]].push_back(name);
  }
  for (const auto& [size, variables] : names) {
    const int64_t n = setting.nranks.value_or(0);
    sink.Note(absl::StrCat(flags.in, ": the batch is fixed: ", absl::StrJoin(variables, ", "),
                           " of ", size, " is what each rank takes, so a step takes ",
                           n > 0 ? absl::StrCat(size * n, " on ", n, n == 1 ? " rank" : " ranks")
                                 : absl::StrCat(size, " times the number of ranks"),
                           "; declare -1 to share a batch of ", size, " among the ranks"));
  }
}

// But for those that the verifier has named.
void WarnOfLostGradients(const TranspileFlags& flags, const Program& written,
                         const std::vector<Message>& notes, std::vector<Said>* said) {
  for (const LostGradient& lost : LostGradients(written, OpTraits(written))) {
    const std::string text = ToString(written, lost);
    const auto says_it = [&](const Message& note) { return note.text == text; };
    if (absl::c_any_of(notes, says_it)) continue;
    said->push_back({Severity::kWarning, absl::StrCat(flags.in, ": ", text),
                     /*names_command=*/true});
  }
}

// What the verdict rests on.
void NoteOps(const TranspileFlags& flags, const Program& written, const Sink& sink) {
  for (const std::string& line : AssumedOfOps(written, flags.assume)) {
    sink.Note(absl::StrCat(flags.in, ": assumed: ", line));
  }
}

// Hints name the mode that reads their flag, if this one does not.
std::string WithModeOfHints(const TranspileFlags& flags, absl::string_view text) {
  constexpr absl::string_view kHint = "transpile option:";
  const TranspileOptions& options = flags.options;
  const absl::StatusOr<const Mode*> own = FindMode(options.mode), other = FindMode(kOtherMode);
  std::string result;
  for (size_t at; (at = text.find(kHint)) != text.npos;) {
    const absl::string_view rest = text.substr(at + kHint.size());
    const std::string flag(rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_")));
    const bool is_read = own.ok() && ReadsFlag(**own, options.dialect, options.mode_flags, flag);
    const bool needs_other = !is_read && ReadsFlag(**other, Dialect::kWeft, {}, flag);
    absl::StrAppend(&result, text.substr(0, at), "transpile ",
                    needs_other ? absl::StrCat("option:mode ", kOtherMode, " ") : "", "option:");
    text = rest;
  }
  return absl::StrCat(result, text);
}

}  // namespace

std::vector<Said> SaidOf(const TranspileFlags& flags, const std::vector<TranspileResult>& results,
                         const std::vector<const Program*>& mains) {
  std::vector<Said> said;
  if (!flags.chosen.empty()) said.push_back({Severity::kNote, flags.chosen});
  std::vector<Message> notes;
  std::set<std::string> shown;
  for (const TranspileResult& result : results) {
    for (const Message& message : result.messages) {
      if (message.topic == Message::Topic::kResult) {
        notes.push_back(message);
      } else if (shown.insert(ToString(message)).second) {
        said.push_back({Severity::kWarning,
                        absl::StrCat(flags.in, ": ", WithModeOfHints(flags, TextWithRule(message))),
                        /*names_command=*/true});
      }
    }
  }
  const Sink sink{nullptr, &notes};
  for (const Program* main : mains) {
    NoteSchedules(flags, *main, sink);
    NoteStart(flags, *main, sink);
    NoteDevices(flags, *main, sink);
    NoteFixedBatch(flags, *main, results.front().setting, sink);
    NoteOps(flags, *main, sink);
  }
  WarnOfLostGradients(flags, *mains.front(), notes, &said);
  for (const Message& note : notes) {
    if (!shown.insert(WithModeOfHints(flags, ToString(note))).second) continue;
    said.push_back({note.severity, WithModeOfHints(flags, TextWithRule(note))});
  }
  return said;
}

void ShowResults(const TranspileFlags& flags, const std::vector<TranspileResult>& results,
                 const std::vector<const Program*>& mains) {
  ShowReports(results.front().passes);
  for (const Said& said : SaidOf(flags, results, mains)) Print("transpile", said);
}

}  // namespace weft
