// A training program whose parameters belong to groups of ranks.
#ifndef WEFT_TESTS_SUPPORT_GROUP_PROGRAMS_H_
#define WEFT_TESTS_SUPPORT_GROUP_PROGRAMS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.h"
#include "transpiler/transpile.h"

namespace weft::testing {

struct GroupPrograms {
  Program main, startup;
  ProgramPair pair() { return {&main, &startup}; }
  ConstProgramPair pair() const { return {&main, &startup}; }
};

// loss = mean((xw w + xv v + xu u - t)^2), with xw, xv, xu: fp32[-1, 2] and t: fp32[-1, 1].
// Momentum of 0.5 updates w, v and u (all fp32[2, 1]), which begin as 0.5, -0.25 and 0.125, by a
// rate of 0.1.
GroupPrograms OneDevicePrograms();

// By parameter: the ranks of its group.
using Groups = std::map<std::string, std::vector<int>>;

// Mode grad_allreduce on 4 ranks.
TranspileOptions OnFourRanks(const Groups& groups);
absl::StatusOr<GroupPrograms> WithGroups(const TranspileOptions& options);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_GROUP_PROGRAMS_H_
