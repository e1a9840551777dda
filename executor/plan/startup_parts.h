// A startup program in parts, for ranks that keep little of what it makes.
#ifndef WEFT_EXECUTOR_PLAN_STARTUP_PARTS_H_
#define WEFT_EXECUTOR_PLAN_STARTUP_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.h"

namespace weft {

struct StartupPart {
  Program program;
  // Persistable variables that it accesses, and no part after it.
  std::vector<std::string> done;
};

// Programs that do together, one after the other, what the startup program does, with the same
// draws. A part ends as soon as it makes persistable variables of `bytes` or more; but not where a
// variable that only lives in a step would be lost, nor in a program with blocks, with buffers that
// share memory with their parts, or with variables that are no dense tensors of known size: such a
// program is one part. O(ops) for each part.
absl::StatusOr<std::vector<StartupPart>> SplitStartup(const Program& startup, int64_t bytes);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PLAN_STARTUP_PARTS_H_
