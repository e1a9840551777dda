#include "transpiler/verifier/races/buffer_order.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/fused_buffers.h"
#include "ops/analysis/devices/device_placement.h"
#include "transpiler/verifier/servers/server_programs.h"

namespace weft {
namespace {

// "op 3 (scale) writes f"
std::string Describe(const Op& op, const UnorderedAccesses& pair) {
  const Program& program = op.program();
  std::vector<Symbol> reads, writes;
  BlockArgs(program).Append(op, &reads, &writes);
  const auto is_of_pair = [&](Symbol name) { return name == pair.buffer || name == pair.part; };
  const auto written = absl::c_find_if(writes, is_of_pair);
  const bool writes_it = written != writes.end();
  const Symbol name = writes_it ? *written : *absl::c_find_if(reads, is_of_pair);
  return absl::StrCat(op.DebugName(), writes_it ? " writes " : " reads ",
                      absl::CEscape(program.name(name)));
}

}  // namespace

void CheckBufferOrder(const ProgramFacts& facts, const Program* startup, OpOrder order,
                      ProgramRef ref, Findings* findings) {
  const Program& program = facts.program();
  if (program.origin() != nullptr && program.origin()->OrdersByData()) return;
  // Paddle does not have the ops that copy between devices, or to servers.
  if (facts.Get<DevicePlacement>().on_two_devices() || facts.Get(HasServerOps)) return;
  Reporter reporter(ref, findings);
  for (const UnorderedAccesses& pair : FindUnorderedAccesses(facts, startup)) {
    const std::string part(program.name(pair.part)), buffer(program.name(pair.buffer));
    reporter.Add(order == OpOrder::kByNames ? "W414" : "W412", pair.second, part,
                 absl::StrCat(Describe(program.op(pair.second), pair), " after ",
                              Describe(program.op(pair.first), pair), ": ", absl::CEscape(part),
                              " is a part of ", absl::CEscape(buffer),
                              ", and Paddle's executor may run the two in any order; name both in "
                              "an op between them, split the op on the buffer by parts, or use no "
                              "fused buffers"),
                 pair.first);
  }
}

}  // namespace weft
