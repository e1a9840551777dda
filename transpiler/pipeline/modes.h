// Named pipelines.
#ifndef WEFT_TRANSPILER_PIPELINE_MODES_H_
#define WEFT_TRANSPILER_PIPELINE_MODES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/spec_text.h"
#include "transpiler/pipeline/pass.h"

namespace weft {

// A flag of the user and values of it.
struct FlagValues {
  std::string flag;
  std::vector<std::string> values;
};

// A pass of a mode: options that the mode sets, and flags of the user that it takes as options of
// the same name.
struct ModePass {
  std::string pass;
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::string> flags;
  // The pass runs only where each of these flags, which are among Mode::choices, has one of these
  // values.
  std::vector<FlagValues> when = {};
};

// A mode is a row of a table: what `--mode NAME` runs in each dialect.
struct Mode {
  std::string name;
  std::string description;  // one line
  std::vector<ModePass> weft;
  std::vector<ModePass> paddle;
  // Flags that choose among passes, with all their values; the first is the default.
  std::vector<FlagValues> choices = {};
  // How many trainers there must be at least, and whether each may drive several devices: where it
  // may, the mode reads flag "devices".
  enum class Trainers { kTwoOrMore, kOneOrMoreWithDevices };
  Trainers trainers = Trainers::kTwoOrMore;
};

// All modes, in the order in which they are listed.
const std::vector<Mode>& Modes();
// InvalidArgument for an unknown mode (lists them).
absl::StatusOr<const Mode*> FindMode(absl::string_view name);

// The pipeline of a mode under the user's flags (name to value, "nrings": "2"). InvalidArgument for
// an unknown mode (lists them), a value that does not choose among its passes, and a flag that the
// mode does not read: one that no pass takes as an option, and, where the mode has no passes, one
// that says who takes part or what is distributed, which every pass can see.
absl::StatusOr<std::vector<Spec>> ExpandMode(absl::string_view mode, Dialect dialect,
                                             const std::map<std::string, std::string>& flags);

}  // namespace weft

#endif  // WEFT_TRANSPILER_PIPELINE_MODES_H_
