#include "transpiler/verifier/races/buffer_order.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/fused_buffers.h"
#include "ops/analysis/core/shared_writes.h"
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

// Whether the names of the ops from `first` to `second` say that the second comes after the first.
bool AreOrderedByNames(const Program& program, OpId first, OpId second) {
  const int block = program.op(first).block();
  if (block != program.op(second).block()) return false;
  absl::flat_hash_set<Symbol> read, written;  // by the first op and by what comes after it
  BlockArgs args(program);
  bool has_come = false;
  for (OpId id : program.block(block).ops()) {
    std::vector<Symbol> reads, writes;
    has_come |= id == first;
    if (!has_come) continue;
    args.Append(program.op(id), &reads, &writes);
    const auto is_written = [&](Symbol name) { return written.contains(name); };
    const auto is_used = [&](Symbol name) { return read.contains(name) || is_written(name); };
    const bool comes_after =
        id == first || absl::c_any_of(reads, is_written) || absl::c_any_of(writes, is_used);
    if (id == second) return comes_after;
    if (!comes_after) continue;
    read.insert(reads.begin(), reads.end());
    written.insert(writes.begin(), writes.end());
  }
  return false;
}

// The rule of accesses that Paddle's executor may run in any order.
absl::string_view RuleFor(OpOrder order) { return order == OpOrder::kByNames ? "W414" : "W412"; }

void CheckOrderOfSharedWrites(const ProgramFacts& facts, OpOrder order, Reporter* reporter) {
  const Program& program = facts.program();
  for (const StaleCopy& copy : facts.Get(FindSharedWrites).followed) {
    if (AreOrderedByNames(program, copy.writes, copy.reads)) continue;
    const std::string name = absl::CEscape(program.name(copy.name));
    reporter->Add(RuleFor(order), copy.reads, program.name(copy.name),
                  absl::StrCat(program.op(copy.reads).DebugName(), " reads ", name, " after ",
                               program.op(copy.writes).DebugName(), " writes its memory: ",
                               program.op(copy.shares).DebugName(), " shares it with ", name,
                               ", and Paddle's executor may run the two in any order; read the "
                               "name that is written, or keep what was there by assign"),
                  copy.writes);
  }
}

}  // namespace

void CheckBufferOrder(const ProgramFacts& facts, const Program* startup, OpOrder order,
                      ProgramRef ref, Findings* findings) {
  const Program& program = facts.program();
  if (program.origin() != nullptr && program.origin()->OrdersByData()) return;
  // Paddle does not have the ops that copy between devices, or to servers.
  if (facts.Get<DevicePlacement>().on_two_devices() || facts.Get(HasServerOps)) return;
  Reporter reporter(ref, findings);
  CheckOrderOfSharedWrites(facts, order, &reporter);
  for (const UnorderedAccesses& pair : FindUnorderedAccesses(facts, startup)) {
    const std::string part(program.name(pair.part)), buffer(program.name(pair.buffer));
    reporter.Add(RuleFor(order), pair.second, part,
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
