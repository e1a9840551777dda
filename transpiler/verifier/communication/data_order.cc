#include "transpiler/verifier/communication/data_order.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ops/analysis/core/block_args.h"
#include "ops/analysis/core/communication.h"
#include "ops/schema/communication_ops.h"
#include "transpiler/verifier/communication/block_conditions.h"

namespace weft {
namespace {

// Calls are the collectives of a block and its ops with collectives in their blocks, numbered from
// 1 in the order of the program. They have one order on all ranks if each follows the one before
// it.
class DataOrderChecker {
 public:
  DataOrderChecker(const ProgramFacts& facts, ProgramRef ref, Findings* findings)
      : program_(facts.program()),
        communications_(facts.Get<Communications>()),
        blocks_(facts.Get<BlocksWithCollectives>()),
        args_(program_),
        reporter_(ref, findings) {}

  void Check() {
    for (int block = 0; block < program_.num_blocks(); ++block) {
      if (blocks_.Has(block)) CheckBlock(block);
    }
  }

 private:
  // The greatest call that ops wait for which have accessed a variable.
  struct Access {
    int of_writer = 0, of_all = 0;
  };

  bool IsCollective(const Op& op) { return communications_.Of(op) != Communication::kNone; }

  // Paddle's executor for ProgramDesc: the op waits for the collectives before it, and all ops
  // after it for the op.
  bool IsBarrier(const Op& op) const {
    return program_.origin() == nullptr &&
           FindStreamSyncOp(op.type()) == StreamSync::kAllWaitForRing;
  }

  bool AreOneOp(OpId a, OpId b) const {
    return program_.origin() != nullptr && program_.origin()->AreOneOp(a, b);
  }

  void CheckBlock(int block) {
    absl::flat_hash_map<Symbol, Access> accesses;
    OpId last_call;
    int calls = 0, of_last_collective = 0, of_barrier = 0;
    std::vector<Symbol> reads, writes;
    const auto ops = program_.block(block).ops();
    for (size_t begin = 0, end = 0; begin < ops.size(); begin = end) {
      reads.clear();
      writes.clear();
      OpId call;  // of this op
      bool is_collective = false;
      for (end = begin; end < ops.size() && (end == begin || AreOneOp(ops[begin], ops[end]));
           ++end) {
        const Op op = program_.op(ops[end]);
        args_.Append(op, &reads, &writes);
        is_collective = is_collective || IsCollective(op);
        if (!call.valid() && (IsCollective(op) || blocks_.RunBy(op))) call = op.id();
      }
      int awaited = is_collective ? of_last_collective : of_barrier;
      if (IsBarrier(program_.op(ops[begin]))) awaited = of_barrier = of_last_collective;
      for (Symbol arg : reads) awaited = std::max(awaited, accesses[arg].of_writer);
      for (Symbol arg : writes) awaited = std::max(awaited, accesses[arg].of_all);
      if (call.valid()) {
        if (awaited < calls) Report(program_.op(call), program_.op(last_call));
        awaited = ++calls;
        last_call = call;
      }
      if (is_collective) of_last_collective = calls;
      for (Symbol arg : reads) {
        int& of_all = accesses[arg].of_all;
        of_all = std::max(of_all, awaited);
      }
      for (Symbol arg : writes) accesses[arg] = {awaited, awaited};
    }
  }

  void Report(const Op& op, const Op& before) {
    const auto text = [this](const Op& one) {
      return absl::StrCat(one.DebugName(), blocks_.RunBy(one) ? " with collectives inside" : "");
    };
    reporter_.Add("W518", op.id(), "",
                  absl::StrCat(text(op), ": expected to depend on data of ", text(before),
                               ", found nothing that orders them"),
                  before.id());
  }

  const Program& program_;
  const Communications& communications_;
  const BlocksWithCollectives& blocks_;
  BlockArgs args_;
  Reporter reporter_;
};

}  // namespace

void CheckDataOrder(const ProgramFacts& facts, ProgramRef ref, Findings* findings) {
  DataOrderChecker(facts, ref, findings).Check();
}

}  // namespace weft
