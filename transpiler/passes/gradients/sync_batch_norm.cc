#include "transpiler/passes/gradients/sync_batch_norm.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/across_ranks.h"
#include "ops/schema/op_attrs.h"
#include "ops/schema/op_schema.h"
#include "proto/all_ops.h"
#include "proto/rewriter.h"
#include "transpiler/passes/support/rings.h"

namespace weft {

void SyncBatchNorm::Options::Bind(OptionBinder& bind) {
  bind.Switch("sync_batch_norm", &sync_batch_norm,
              "normalize by the statistics of all ranks' batches, as one device does");
}

absl::StatusOr<bool> SyncBatchNorm::Run(const PassContext& context, ProgramPair& programs) const {
  if (!options_.sync_batch_norm) return false;
  WEFT_RETURN_IF_ERROR(RefuseGroups(context));
  Rewriter rewriter(programs.main);
  for (const Op& op : AllOps(*programs.main)) {
    if (op.type() != "batch_norm" && op.type() != "batch_norm_grad") continue;
    const std::string type = absl::StrCat("sync_", op.type());
    WEFT_ASSIGN_OR_RETURN(const OpAttrs attrs, OpAttrs::Decode(op, *FindOpSchema(type)));
    if (!ComputesAcrossRanks(type, attrs)) continue;
    pb::OpDesc desc = op.ToProto();
    desc.set_type(type);
    rewriter.Replace(op.id(), desc);
    context.sink.Explain(kName, op.DebugName(), "synchronized",
                         "it normalizes by statistics of the batch");
  }
  return CommitEdits(&rewriter);
}

}  // namespace weft
