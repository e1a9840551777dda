#include "transpiler/verifier/batch/loss_advice.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "ops/schema/batch_relation.h"
#include "ops/schema/batch_rules.h"
#include "ops/schema/op_schema.h"

namespace weft {
namespace {

constexpr char kOrAccept[] = "or accept the difference";

}  // namespace

std::string LossAdvice(const Program& main, const BatchFlow& flow, OpId cause) {
  if (!cause.valid()) {
    return absl::StrCat("; compute it from values of which every rank has the reference values, ",
                        kOrAccept);
  }
  const Op op = main.op(cause);
  if (!WhyUnrelated(op).empty()) return "";  // says it
  if (FindOpSchema(op.type()) == nullptr) {
    return absl::StrCat("; the verifier does not know ", op.type(),
                        ": if it computes each sample alone, pass option:assume '", op.type(),
                        ": per_sample', else write it with ops of docs/reference/ops.md, ",
                        kOrAccept);
  }
  const auto lost = absl::c_find_if(flow.lost_relations(),
                                    [&](const LostRelation& other) { return other.op == cause; });
  std::vector<BatchRelation> inputs;
  if (lost != flow.lost_relations().end()) inputs = lost->inputs;
  const auto any = [&](bool (BatchRelation::*is)() const) {
    return absl::c_any_of(inputs, [is](BatchRelation in) { return (in.*is)(); });
  };
  const auto is_extremum = [&](Symbol name) {
    const VarId var = main.block(op.block()).Resolve(name);
    return var.valid() && flow.AtEnd(var).relation.IsPartialOther();
  };
  if (absl::c_any_of(op.output_args(), is_extremum)) {
    return absl::StrCat("; take a mean over the samples instead, ", kOrAccept);
  }
  if (any(&BatchRelation::IsPartial)) {
    return absl::StrCat("; let only sums, means and factors follow a mean or sum over the batch, ",
                        kOrAccept);
  }
  if (any(&BatchRelation::IsSharded)) {
    return absl::StrCat(
        "; if ", op.type(),
        " compares samples, gather the samples of all ranks before it "
        "(c_allgather, and c_reducescatter "
        "of their gradient) ",
        kOrAccept, "; if each rank is fed the whole of an input, say so by option:feed_layout");
  }
  return absl::StrCat("; compute it without ", op.type(), ", ", kOrAccept);
}

}  // namespace weft
