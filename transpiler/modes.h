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
#include "transpiler/pipeline/pass.h"
#include "transpiler/pipeline/registry.h"

namespace weft {

// A flag of the user and its value.
using FlagValue = std::pair<std::string, std::string>;

// What a mode runs in one dialect, under one choice of flags.
struct ModePipeline {
  Dialect dialect = Dialect::kWeft;
  // The values of flags that select it; none: the dialect has one pipeline.
  std::vector<FlagValue> choice;
  // Passes as text (base/spec_text.h). Placeholder $flag hands the user's flag to the option of
  // that name: "comm-init{$nrings}"; $flag=2 sets the option to 2 where the flag is not given.
  std::string passes;
};

// A mode is a row of a table: what `--mode NAME` runs.
struct Mode {
  std::string name;
  std::string description;  // one line
  // None at all: the mode only reads, verifies and writes. None in a dialect: it is refused there.
  std::vector<ModePipeline> pipelines;
  // Help for flags that select a pipeline and that no pass has as an option.
  std::map<std::string, std::string> help = {};
  // How many trainers there must be at least, and whether each may drive several devices: where it
  // may, the mode reads flag "devices".
  enum class Trainers { kTwoOrMore, kOneOrMoreWithDevices };
  Trainers trainers = Trainers::kTwoOrMore;
};

// All modes, in the order in which they are listed.
const std::vector<Mode>& Modes();
// InvalidArgument for an unknown mode (lists them).
absl::StatusOr<const Mode*> FindMode(absl::string_view name);

// The flags that select among the pipelines of a mode, each with its values over both dialects. The
// first value is the default.
using FlagChoices = std::vector<std::pair<std::string, std::vector<std::string>>>;
FlagChoices ChoicesOf(const Mode& mode);

// The flags that a pipeline of the mode reads, sorted: those that select it, those that it hands to
// passes, and "devices" where the mode reads it.
std::vector<std::string> FlagsOf(const Mode& mode, const ModePipeline& pipeline);

// The pipeline of a mode under the user's flags (name to value, "nrings": "2"). `context_flags`
// names what is given besides and passes find in their context: who takes part ("nranks") and what
// is distributed.
//
// InvalidArgument for a mode that has pipelines, but none in this dialect, a value that selects
// none of its pipelines, and a flag that the mode does not read; a mode without passes reads no
// context.
absl::StatusOr<std::vector<Spec>> ExpandMode(const Mode& mode, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags = {});
// The same of the mode of that name. InvalidArgument also for an unknown mode (lists them).
absl::StatusOr<std::vector<Spec>> ExpandMode(absl::string_view name, Dialect dialect,
                                             const std::map<std::string, std::string>& flags,
                                             const std::vector<std::string>& context_flags = {});

// A flag that some mode reads in `mode_flags`.
struct ModeFlag {
  std::string name;
  std::string help;
  std::string expected;               // "an integer >= 1", "auto|avg"
  std::vector<std::string> defaults;  // several where it depends on mode and dialect
  std::vector<std::string> modes;     // that read it
};

// All of them, in the order in which the table of modes mentions them. Help, expected values and
// defaults are those of the passes' options. InvalidArgument where a mode names a pass or an option
// that the registry does not have.
absl::StatusOr<std::vector<ModeFlag>> ModeFlags(const PassRegistry& registry);

}  // namespace weft

#endif  // WEFT_TRANSPILER_MODES_H_
