#include "transpiler/passes/averaging_writer.h"

#include <string>
#include <utility>
#include <vector>

#include "proto/op_role.h"
#include "transpiler/passes/op_builder.h"

namespace weft {
namespace {

using Attrs = std::vector<std::pair<std::string, AttrValue>>;

// On `names`, in place.
pb::OpDesc InPlace(const std::string& type, const std::vector<std::string>& names, Attrs attrs,
                   absl::optional<int> nranks = absl::nullopt) {
  return BuildOp({type, {{"X", names}}, {{"Out", names}}, std::move(attrs), kRoleOptimize, nranks},
                 Dialect::kWeft);
}

pb::OpDesc CastOp(const AveragingPlan::Cast& cast) {
  return BuildOp({"cast",
                  {{"X", {cast.master}}},
                  {{"Out", {cast.param}}},
                  {{"in_dtype", static_cast<int>(cast.master_type)},
                   {"out_dtype", static_cast<int>(cast.param_type)}},
                  kRoleOptimize},
                 Dialect::kWeft);
}

// Starts the reduction of one element type. Returns what a wait for it has to name; the last is the
// variable that is reduced.
std::vector<std::string> Launch(const FusedTensors& tensors, int ring, bool sums, int block,
                                UniqueNames* names, Rewriter* rewriter) {
  std::vector<std::string> variables = tensors.names;
  if (tensors.names.size() > 1) {
    variables.push_back(names->Next("local_sgd_buffer"));
    rewriter->AddVar(block, FusedBuffer(variables.back(), tensors));
    rewriter->Append(block,
                     Coalesce(tensors, variables.back(), FusedValues::kCopied, kRoleOptimize));
  }
  rewriter->Append(block, InPlace("c_wait_compute", variables, {{"ring_id", ring}}));
  rewriter->Append(block, InPlace(sums ? "c_allreduce_sum" : "c_allreduce_avg", {variables.back()},
                                  {{"ring_id", ring}, {"use_calc_stream", false}}));
  return variables;
}

}  // namespace

void WriteAveraging(const AveragingPlan& plan, int nrings, absl::optional<int> nranks, int block,
                    UniqueNames* names, Rewriter* rewriter) {
  std::vector<std::vector<std::string>> in_flight;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    in_flight.push_back(Launch(plan.averaged[i], static_cast<int>(i) % nrings, nranks.has_value(),
                               block, names, rewriter));
  }
  for (size_t i = 0; i < in_flight.size(); ++i) {
    const int ring = static_cast<int>(i) % nrings;
    rewriter->Append(block, InPlace("c_wait_comm", in_flight[i], {{"ring_id", ring}}));
    if (!nranks.has_value()) continue;
    const float factor = static_cast<float>(1.0 / *nranks);
    rewriter->Append(block, InPlace("scale", {in_flight[i].back()}, {{"scale", factor}}, nranks));
  }
  for (const AveragingPlan::Cast& cast : plan.casts) rewriter->Append(block, CastOp(cast));
  for (const AveragingPlan::Reset& reset : plan.resets) rewriter->Append(block, reset.op);
}

}  // namespace weft
