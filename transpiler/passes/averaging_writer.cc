#include "transpiler/passes/averaging_writer.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "transpiler/passes/op_builder.h"

namespace weft {
namespace {

pb::VarDesc ScalarVar(const std::string& name, DType dtype) {
  pb::VarDesc var = TensorVar(name, dtype, {1});
  var.set_stop_gradient(true);
  return var;
}

pb::OpDesc Fill(const std::string& name, int value, int role) {
  return BuildOp({"fill_constant",
                  {},
                  {{"Out", {name}}},
                  {{"dtype", static_cast<int>(DType::kInt64)},
                   {"shape", std::vector<int64_t>{1}},
                   {"value", static_cast<float>(value)},
                   {"str_value", absl::StrCat(value)}},
                  role},
                 Dialect::kWeft);
}

pb::OpDesc InPlace(const std::string& type, const std::vector<std::string>& names, NewAttrs attrs,
                   absl::optional<int> nranks = absl::nullopt) {
  return BuildOp(InPlaceOp(type, names, std::move(attrs), kRoleOptimize, nranks), Dialect::kWeft);
}

// Declares the counter in both programs. Returns its name.
std::string WriteCounter(UniqueNames* names, Rewriter* main, Rewriter* startup) {
  std::string name = names->Of("local_sgd_step");
  pb::VarDesc counter = ScalarVar(name, DType::kInt64);
  counter.set_persistable(true);
  startup->AddVar(0, counter);
  startup->Append(0, Fill(name, 0, kRoleForward));
  main->AddVar(0, counter);
  main->Append(0, InPlace("increment", {name}, {{"step", 1.0f}}));
  return name;
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

// Starts the reduction of one element type by an op of type `all_reduce`. Returns the variables
// that a wait for it names; the last one is reduced.
std::vector<std::string> Launch(const FusedTensors& tensors, int ring, const char* all_reduce,
                                int block, UniqueNames* names, Rewriter* rewriter) {
  std::vector<std::string> variables = tensors.names;
  if (tensors.names.size() > 1) {
    variables.push_back(names->Next("local_sgd_buffer"));
    rewriter->AddVar(block, FusedBuffer(variables.back(), tensors));
    rewriter->Append(block,
                     Coalesce(tensors, variables.back(), FusedValues::kCopied, kRoleOptimize));
  }
  rewriter->Append(block, InPlace("c_wait_compute", variables, {{"ring_id", ring}}));
  rewriter->Append(block, InPlace(all_reduce, {variables.back()},
                                  {{"ring_id", ring}, {"use_calc_stream", false}}));
  return variables;
}

}  // namespace

std::string WriteAveragingCondition(const AveragingSchedule& schedule, UniqueNames* names,
                                    Rewriter* main, Rewriter* startup) {
  const auto declare = [&](const char* wanted, DType dtype) {
    std::string name = names->Of(wanted);
    main->AddVar(0, ScalarVar(name, dtype));
    return name;
  };
  const auto constant = [&](const char* wanted, int value) {
    std::string name = declare(wanted, DType::kInt64);
    main->Append(0, Fill(name, value, kRoleOptimize));
    return name;
  };
  const auto compute = [&](const char* wanted, DType dtype, const char* type, const std::string& x,
                           const std::string& y, NewAttrs attrs = {}) {
    std::string name = declare(wanted, dtype);
    const NewOp op = {
        type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {name}}}, std::move(attrs), kRoleOptimize};
    main->Append(0, BuildOp(op, Dialect::kWeft));
    return name;
  };
  const std::string step = WriteCounter(names, main, startup);
  const std::string period = constant("local_sgd_k", schedule.period);
  const std::string remainder = compute("local_sgd_remainder", DType::kInt64, "elementwise_mod",
                                        step, period, {{"axis", -1}});
  const std::string zero = constant("local_sgd_zero", 0);
  const std::string is_due = compute("local_sgd_is_due", DType::kBool, "equal", remainder, zero);
  if (schedule.first_step <= schedule.period) return is_due;

  const std::string first = constant("local_sgd_begin", schedule.first_step);
  const std::string has_begun =
      compute("local_sgd_started", DType::kBool, "greater_equal", step, first);
  return compute("local_sgd_condition", DType::kBool, "logical_and", is_due, has_begun);
}

void WriteAveraging(const AveragingPlan& plan, int nrings, absl::optional<int> nranks, int block,
                    UniqueNames* names, Rewriter* rewriter) {
  const char* const all_reduce = nranks.has_value() ? "c_allreduce_sum" : "c_allreduce_avg";
  std::vector<std::vector<std::string>> in_flight;
  for (size_t i = 0; i < plan.averaged.size(); ++i) {
    in_flight.push_back(
        Launch(plan.averaged[i], static_cast<int>(i) % nrings, all_reduce, block, names, rewriter));
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
