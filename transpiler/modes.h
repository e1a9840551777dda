// Modes: named pipelines.
#ifndef WEFT_TRANSPILER_MODES_H_
#define WEFT_TRANSPILER_MODES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/spec_text.h"
#include "transpiler/pipeline/registry.h"
#include "transpiler/pipeline/target.h"

namespace weft {

// A user's flag and its value.
using FlagValue = std::pair<std::string, std::string>;

// The pipeline of a mode in one dialect and for one choice of flags.
struct ModePipeline {
  Dialect dialect = Dialect::kWeft;
  // The flag values that select it; empty if the dialect has a single pipeline.
  std::vector<FlagValue> choice;
  // Passes as text (base/spec_text.h). Placeholder $flag passes the user's flag to the option of
  // that name: "comm-init{$nrings}". $flag=2 sets the option to 2 if the flag is not given.
  std::string passes;
};

// What `--mode NAME` runs.
struct Mode {
  std::string name;
  std::string description;  // one short line
  // None at all: the mode only reads, verifies and writes. None in a dialect: refused there.
  std::vector<ModePipeline> pipelines;
  // Under which heading lists have it.
  enum class Group { kCommon, kOtherSystems, kOffloadAndServers };
  Group group = Group::kCommon;
  // Where the result can run. Modes for Weft alone write ops that no Paddle has, and read no flags
  // about Paddle ("device_kind", "paddle_version").
  enum class RunsIn { kPaddleAndWeft, kWeft };
  RunsIn runs_in = RunsIn::kPaddleAndWeft;
  // Flags without a default, with a value as an example. They must be given, unless there is one
  // rank only: then they have that value.
  std::map<std::string, std::string> required = {};
  // The least number of trainers in the paddle dialect, and whether each may drive several devices.
  // If so, the mode reads flag "devices".
  enum class Trainers { kTwoOrMore, kOneOrMoreWithDevices };
  Trainers trainers = Trainers::kTwoOrMore;
  // Help for flags that select a pipeline and are no option of a pass.
  std::map<std::string, std::string> help = {};
  // Parameters of the servers of another system are left to them (ParamAttrs::parameter_server).
  bool leaves_served = false;
};

// All modes, in the order of the manual.
const std::vector<Mode>& Modes();
// InvalidArgument for an unknown mode (lists them).
absl::StatusOr<const Mode*> FindMode(absl::string_view name);

// The dialects that have a pipeline of the mode; both for a mode without pipelines.
std::vector<Dialect> DialectsOf(const Mode& mode);

// The flags that select among the pipelines of a mode, each with its values in both dialects. The
// first value is the default.
using FlagChoices = std::vector<std::pair<std::string, std::vector<std::string>>>;
FlagChoices ChoicesOf(const Mode& mode);

// The flags that a pipeline of the mode reads, sorted: those that select it, those that it passes
// to options, and "devices" if the mode reads it.
std::vector<std::string> FlagsOf(const Mode& mode, const ModePipeline& pipeline);

// Whether the pipeline that `flags` select reads this one, too.
bool ReadsFlag(const Mode& mode, Dialect dialect, const std::map<std::string, std::string>& flags,
               const std::string& flag);

// The pipeline of a mode for the user's flags (name to value, "nrings": "2"). `context_flags` names
// the given flags that passes read from their context: those of the cluster ("nranks") and
// "distributed_params".
//
// InvalidArgument for a mode that has pipelines, but none in this dialect, a value that selects
// none of its pipelines, a flag that the mode does not read, and a required flag that is not given.
// A mode without passes reads no context.
absl::StatusOr<std::vector<Spec>> ExpandMode(const Mode& mode, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags = {});
// The same of the mode of that name. InvalidArgument also for an unknown mode (lists them).
absl::StatusOr<std::vector<Spec>> ExpandMode(absl::string_view name, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags = {});

// A flag of `mode_flags`.
struct ModeFlag {
  std::string name;
  std::string help;
  std::string expected;               // "an integer >= 1", "auto|avg"
  std::vector<std::string> defaults;  // several if it depends on mode and dialect
  std::vector<std::string> modes;     // that read it
  std::string old_name;               // still works; empty: none
};

// All flags, in the order of the table of modes. Help, expected values and defaults come from the
// options of the passes. InvalidArgument if a mode names an unknown pass or option.
absl::StatusOr<std::vector<ModeFlag>> ModeFlags(const PassRegistry& registry);
// Those of one mode, with its defaults.
absl::StatusOr<std::vector<ModeFlag>> ModeFlags(const Mode& mode, const PassRegistry& registry);

// Whether the mode reads this flag of the context ("nranks") in one of its dialects.
bool ReadsContext(const Mode& mode, const std::string& flag);

// In the order in which lists have them.
inline constexpr Mode::Group kModeGroups[] = {Mode::Group::kCommon, Mode::Group::kOtherSystems,
                                              Mode::Group::kOffloadAndServers};
absl::string_view GroupTitle(Mode::Group group);  // "common"

}  // namespace weft

#endif  // WEFT_TRANSPILER_MODES_H_
