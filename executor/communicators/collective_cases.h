// Collectives that tests run on several engines, to compare the bits.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_CASES_H_
#define WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/communicators/communicator.h"

namespace weft {

struct CollectiveCase {
  CollectiveDesc desc;
  bool in_place = false;
};

std::string ToString(const CollectiveCase& c);

// All kinds, reductions and element types, with roots, with counts from 0 to several chunks of
// NewMessageGroup, in place and not.
std::vector<CollectiveCase> CollectiveCases(int nranks);

// Runs the cases, one after the other, on one rank of a ring with inputs that depend on its
// position and the case. Returns the bytes of the results.
absl::StatusOr<std::vector<std::string>> RunCases(const std::vector<CollectiveCase>& cases,
                                                  Communicator* end);

// What RunCases returns on each rank of a ring of threads (NewLocalGroup).
std::vector<std::vector<std::string>> ExpectedResults(const std::vector<CollectiveCase>& cases,
                                                      int nranks);

// "" if the results are the expected ones, else the first case that differs.
std::string FirstDifference(const std::vector<CollectiveCase>& cases,
                            const std::vector<std::string>& found,
                            const std::vector<std::string>& expected);

// Calls body(rank) on one thread per rank; returns the results by rank.
std::vector<absl::Status> OnRankThreads(int nranks, const std::function<absl::Status(int)>& body);

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_COLLECTIVE_CASES_H_
