// The variables that some of the ranks keep equal.
#ifndef WEFT_OPS_ANALYSIS_CORE_GROUP_VARIABLES_H_
#define WEFT_OPS_ANALYSIS_CORE_GROUP_VARIABLES_H_

#include <map>
#include <string>
#include <vector>

#include "ops/analysis/core/program_facts.h"

namespace weft {

// Parameters, with their optimizer states, that are updated by a gradient which collectives on the
// ring of a group of ranks have reduced (kGroupRanksAttr): the ranks of the group, by name. The
// program says so; whether it is right is the matter of the verifier. O(arguments); O(ops) for a
// program without groups.
std::map<std::string, std::vector<int>> FindGroupVariables(const ProgramFacts& main);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_CORE_GROUP_VARIABLES_H_
