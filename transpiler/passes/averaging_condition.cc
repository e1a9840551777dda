#include "transpiler/passes/averaging_condition.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/schema/tensor_type.h"
#include "proto/op_role.h"
#include "proto/program.h"
#include "transpiler/passes/op_builder.h"
#include "transpiler/passes/tensor_var.h"

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

// Appends scalars and what computes them to the main program.
class Writer {
 public:
  Writer(UniqueNames* names, Rewriter* main) : names_(*names), main_(*main) {}

  std::string Constant(const std::string& wanted, int value) {
    std::string name = Declare(wanted, DType::kInt64);
    main_.Append(0, Fill(name, value, kRoleOptimize));
    return name;
  }

  // A bool or, of elementwise_mod, an integer.
  std::string Compute(const std::string& wanted, DType dtype, const std::string& type,
                      const std::string& x, const std::string& y,
                      std::vector<std::pair<std::string, AttrValue>> attrs = {}) {
    std::string name = Declare(wanted, dtype);
    main_.Append(
        0, BuildOp(
               {type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {name}}}, std::move(attrs), kRoleOptimize},
               Dialect::kWeft));
    return name;
  }

 private:
  std::string Declare(const std::string& wanted, DType dtype) {
    std::string name = names_.Of(wanted);
    main_.AddVar(0, ScalarVar(name, dtype));
    return name;
  }

  UniqueNames& names_;
  Rewriter& main_;
};

// Declares the counter in both programs. Returns its name.
std::string WriteCounter(UniqueNames* names, Rewriter* main, Rewriter* startup) {
  std::string name = names->Of("local_sgd_step");
  pb::VarDesc counter = ScalarVar(name, DType::kInt64);
  counter.set_persistable(true);
  startup->AddVar(0, counter);
  startup->Append(0, Fill(name, 0, kRoleForward));
  main->AddVar(0, counter);
  main->Append(
      0, BuildOp({"increment", {{"X", {name}}}, {{"Out", {name}}}, {{"step", 1.0f}}, kRoleOptimize},
                 Dialect::kWeft));
  return name;
}

}  // namespace

std::string WriteAveragingCondition(const AveragingSchedule& schedule, UniqueNames* names,
                                    Rewriter* main, Rewriter* startup) {
  const std::string step = WriteCounter(names, main, startup);
  Writer writer(names, main);
  const std::string period = writer.Constant("local_sgd_k", schedule.period);
  const std::string remainder = writer.Compute("local_sgd_remainder", DType::kInt64,
                                               "elementwise_mod", step, period, {{"axis", -1}});
  const std::string zero = writer.Constant("local_sgd_zero", 0);
  const std::string is_due =
      writer.Compute("local_sgd_is_due", DType::kBool, "equal", remainder, zero);
  if (schedule.first_step <= schedule.period) return is_due;

  const std::string first = writer.Constant("local_sgd_begin", schedule.first_step);
  const std::string has_begun =
      writer.Compute("local_sgd_started", DType::kBool, "greater_equal", step, first);
  return writer.Compute("local_sgd_condition", DType::kBool, "logical_and", is_due, has_begun);
}

}  // namespace weft
