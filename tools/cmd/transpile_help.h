// What transpile says about its modes, passes and their flags.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_HELP_H_
#define WEFT_TOOLS_CMD_TRANSPILE_HELP_H_

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/types/optional.h"
#include "transpiler/modes.h"

namespace weft {

// The modes under the headings of their groups, one line each; those of other systems with their
// pipelines, which show how to write others.
std::string ListModes();
// The passes with their options.
std::string ListPasses();

// Adds the flags that modes read, also by their old names. `values` gets those that are given, by
// name.
void AddModeFlags(CLI::App& app, std::map<std::string, absl::optional<std::string>>* values);

// Adds the flags that describe the job.
void AddContextFlags(CLI::App& app, std::map<std::string, absl::optional<std::string>>* values);

// --help: leaves the flags that everybody needs, and lists the modes.
void ShowModes(CLI::App& app);
// --mode M --help: leaves the flags that the mode reads, with its defaults.
void ShowFlagsOf(const Mode& mode, CLI::App& app);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_HELP_H_
