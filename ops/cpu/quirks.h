// Which ops of a program Paddle's CPU kernels compute otherwise than they are defined.
#ifndef WEFT_OPS_CPU_QUIRKS_H_
#define WEFT_OPS_CPU_QUIRKS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

struct QuirkyOp {
  OpId op;
  absl::string_view how;      // what Paddle's kernel does, as in docs/reference/ops.md
  bool is_reproduced = true;  // the kernel depends on KernelSpec::paddle_cpu_quirks
};

// Those of all blocks that attributes and declared types do not rule out, in program order. Whether
// values bring the difference about is not known. O(arguments).
std::vector<QuirkyOp> FindQuirkyOps(const Program& program);

}  // namespace weft

#endif  // WEFT_OPS_CPU_QUIRKS_H_
