#include "transpiler/passes/devices/first_updates.h"

#include <algorithm>
#include <vector>

#include "absl/types/span.h"
#include "ops/analysis/core/op_traits.h"
#include "ops/analysis/core/storage.h"
#include "ops/schema/op_schema.h"

namespace weft {

absl::flat_hash_map<OpId, OpId> FindFirstUpdates(const Program& program) {
  absl::flat_hash_map<OpId, OpId> first_updates;
  OpTraits traits(program);
  constexpr int kNever = -1;
  std::vector<int> named(program.symbols().size(), kNever);  // by symbol: the last op that does
  std::vector<int> written(program.symbols().size(), kNever);
  const Storage storage(program);
  CurrentBuffers buffers(storage);
  int barrier = kNever;  // the last op that may use any variable
  struct Position {
    int index;
    OpId op;
  };
  std::vector<Position> updates;
  const absl::Span<const OpId> ops = program.block(0).ops();
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const Op op = program.op(ops[i]);
    if (traits.Has(op, Trait::kOptimizer)) {
      updates.push_back({i, op.id()});
      int after = barrier;
      for (Symbol grad : op.Input("Grad")) {
        after = std::max(after, named[grad.value()]);
        const Storage::Buffer* const buffer = buffers.WithPart(0, grad);
        if (buffer != nullptr) after = std::max(after, named[buffer->name.value()]);
      }
      for (const char* slot : {"Param", "MasterParam"}) {
        for (Symbol param : op.Input(slot)) after = std::max(after, written[param.value()]);
      }
      const auto first =
          std::upper_bound(updates.begin(), updates.end(), after,
                           [](int index, const Position& update) { return index < update.index; });
      first_updates[op.id()] = first->op;
    }
    const bool waits_for_all = traits.Has(op, Trait::kStreamSync) && op.args().empty();
    if (!op.SubBlocks().empty() || waits_for_all) barrier = i;
    for (Symbol name : op.args()) named[name.value()] = i;
    for (Symbol name : op.output_args()) written[name.value()] = i;
    buffers.Pass(op.id());
  }
  return first_updates;
}

}  // namespace weft
