#include "ops/analysis/core/synchronized.h"

#include <cstddef>
#include <cstdint>

#include "absl/algorithm/container.h"
#include "ops/schema/communication_ops.h"
#include "proto/all_ops.h"
#include "proto/averaging_schedule.h"

namespace weft {

absl::flat_hash_set<VarId> FindSynchronized(const Program& program, const Storage& storage,
                                            const Setting& setting) {
  absl::flat_hash_set<VarId> synchronized;
  const bool is_claimed = setting.averaging.has_value() &&
                          (setting.averaging->delay > 0 || setting.averaging->mix > 0 ||
                           setting.averaging->sent != AveragingSchedule::Sent::kWhole);
  if (!is_claimed) return synchronized;
  absl::flat_hash_set<uint64_t> made;  // Storage::ClassOf
  size_t before = 0;
  do {
    before = made.size();
    for (const Op& op : AllOps(program)) {
      if (!op.SubBlocks().empty() || !op.Input("Param").empty()) continue;
      const CollectiveOp* const collective = FindCollectiveOp(op);
      const bool is_made =
          (collective != nullptr && collective->kind == CollectiveKind::kAllReduce) ||
          absl::c_any_of(op.input_args(),
                         [&](Symbol in) { return made.contains(storage.ClassOf(op.block(), in)); });
      if (!is_made) continue;
      for (Symbol out : op.output_args()) made.insert(storage.ClassOf(op.block(), out));
    }
  } while (made.size() != before);
  for (VarId var : program.block(0).vars()) {
    if (made.contains(storage.ClassOf(0, program.var(var).name_symbol()))) synchronized.insert(var);
  }
  return synchronized;
}

}  // namespace weft
