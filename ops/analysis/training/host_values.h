// What the host writes into variables of a program before every step.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_HOST_VALUES_H_
#define WEFT_OPS_ANALYSIS_TRAINING_HOST_VALUES_H_

#include <string>
#include <vector>

#include "proto/program.h"

namespace weft {

// A variable of the root blocks of two programs that the host does not set alike. Ops that read it
// compute other values in one of them, although they are the same function of its name.
struct HostValueDifference {
  std::string variable;
  // What the host does: "sets it by the schedule step{...}", "feeds it", "does not set it".
  std::string expected, found;
};

// Compares the schedules (FindHostSchedules) and the data variables (FindData) of two programs. A
// variable that one of them lacks, or does not keep between steps, is not compared: ops that read
// it there read what other ops write. By name. O(arguments).
std::vector<HostValueDifference> CompareHostValues(const Program& expected, const Program& found);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_HOST_VALUES_H_
