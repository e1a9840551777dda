#include "tests/mutation/loss_mutations.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "tests/mutation/mutation_edits.h"
#include "tests/support/program_descs.h"

namespace weft::testing {
namespace {

std::string GradOf(const std::string& name) { return absl::StrCat(name, kGradSuffix); }

// Where a model computes its loss, in the root block.
struct LossOps {
  int mean = -1;       // the forward op
  int begin = -1;      // the constant with which the backward pass begins
  int mean_grad = -1;  // of the forward op
  std::string loss, data;
};

int FindOp(const Ops& ops, const std::string& type, const std::string& name) {
  for (int i = 0; i < ops.size(); ++i) {
    if (ops.Get(i).type() == type && NamesOf(ops.Get(i)).count(name) > 0) return i;
  }
  return -1;
}

LossOps FindLoss(const pb::ProgramDesc& main) {
  LossOps found;
  const Ops& ops = main.blocks(0).ops();
  for (int i = 0; i < ops.size() && found.mean < 0; ++i) {
    const bool is_mean =
        ops.Get(i).type() == "reduce_mean" && NumberOf(ops.Get(i), "reduce_all") != 0;
    if (is_mean && RoleOf(ops.Get(i)) == kRoleLoss) found.mean = i;
  }
  if (found.mean < 0) return found;
  found.loss = ArgsOf(ops.Get(found.mean).outputs(), "Out")[0];
  found.begin = FindOp(ops, "fill_constant", GradOf(found.loss));
  found.mean_grad = FindOp(ops, "reduce_mean_grad", GradOf(found.loss));
  for (const pb::VarDesc& var : main.blocks(0).vars()) {
    if (var.need_check_feed() && TensorOf(var)->data_type() == pb::VarType::FP32) {
      found.data = var.name();
    }
  }
  return found;
}

struct Slot {
  std::string slot, name;
};

pb::OpDesc OpWith(const std::string& type, const std::vector<Slot>& in, const Slot& out, int role) {
  pb::OpDesc op;
  op.set_type(type);
  for (const Slot& slot : in) SetArgs({slot.name}, slot.slot, op.mutable_inputs());
  SetArgs({out.name}, out.slot, op.mutable_outputs());
  SetInt(&op, kOpRoleAttr, role);
  return op;
}

class LossMutator {
 public:
  explicit LossMutator(const Model& model)
      : model_(model), main_(model.main.ToProto()), loss_(FindLoss(main_)) {}

  std::vector<LossMutant> Run() {
    if (loss_.mean < 0 || loss_.begin < 0 || loss_.mean_grad < 0) return {};
    Add("loss: sum", [this](pb::ProgramDesc* main) { Reduce("reduce_sum", main); });
    Add("loss: maximum", [this](pb::ProgramDesc* main) { Reduce("reduce_max", main); });
    Add("loss: sum with another divisor", [this](pb::ProgramDesc* main) {
      Reduce("reduce_sum", main);
      Apply("scale", main);
    });
    Add("loss: mean times a number", [this](pb::ProgramDesc* main) { Apply("scale", main); });
    for (const std::string function : {"sqrt", "square", "exp"}) {
      Add(absl::StrCat("loss: ", function, " of a mean"),
          [this, function](pb::ProgramDesc* main) { Apply(function, main); });
    }
    if (!loss_.data.empty()) {
      Add("loss: product of means", [this](pb::ProgramDesc* main) { Multiply(main); });
    }
    return std::move(mutants_);
  }

 private:
  template <typename Edit>
  void Add(const std::string& kind, const Edit& edit) {
    pb::ProgramDesc main = main_;
    edit(&main);
    mutants_.push_back({kind, {*Program::FromProto(main), model_.startup}});
  }

  static Ops* OpsOf(pb::ProgramDesc* main) { return main->mutable_blocks(0)->mutable_ops(); }

  void Reduce(const std::string& type, pb::ProgramDesc* main) const {
    OpsOf(main)->Mutable(loss_.mean)->set_type(type);
    pb::OpDesc* grad = OpsOf(main)->Mutable(loss_.mean_grad);
    grad->set_type(type + "_grad");
    if (type == "reduce_max") SetArgs({loss_.loss}, "Out", grad->mutable_inputs());
  }

  void DeclareLike(const std::string& name, pb::ProgramDesc* main) const {
    pb::VarDesc value = *FindVar(main, 0, loss_.loss);
    pb::VarDesc grad = *FindVar(main, 0, GradOf(loss_.loss));
    value.set_name(name);
    grad.set_name(GradOf(name));
    *main->mutable_blocks(0)->add_vars() = value;
    *main->mutable_blocks(0)->add_vars() = grad;
  }

  // Inserts the forward ops after the mean, and the backward op after the constant, which is now
  // the gradient of the new loss.
  void Insert(const std::vector<pb::OpDesc>& forward, const pb::OpDesc& backward,
              pb::ProgramDesc* main) const {
    SetInt(OpsOf(main)->Mutable(loss_.mean), kOpRoleAttr, kRoleForward);
    Rename(GradOf(loss_.loss), GradOf(kNewLoss), OpsOf(main)->Mutable(loss_.begin));
    testing::Insert(OpsOf(main), loss_.begin + 1, backward);
    for (size_t i = 0; i < forward.size(); ++i) {
      testing::Insert(OpsOf(main), loss_.mean + 1 + static_cast<int>(i), forward[i]);
    }
  }

  void Apply(const std::string& type, pb::ProgramDesc* main) const {
    DeclareLike(kNewLoss, main);
    const std::string grad = GradOf(kNewLoss);
    const std::string of_mean = GradOf(loss_.loss);
    const int role = kRoleForward | kRoleLoss;
    pb::OpDesc forward = OpWith(type, {{"X", loss_.loss}}, {"Out", kNewLoss}, role);
    pb::OpDesc backward =
        type == "scale" ? OpWith(type, {{"X", grad}}, {"Out", of_mean}, kRoleBackward)
                        : OpWith(type + "_grad",
                                 {type == "square" ? Slot{"X", loss_.loss} : Slot{"Out", kNewLoss},
                                  {"Out@GRAD", grad}},
                                 {"X@GRAD", of_mean}, kRoleBackward);
    if (type == "scale") {
      SetFloat(&forward, "scale", 0.125);
      SetFloat(&backward, "scale", 0.125);
    }
    Insert({forward}, backward, main);
  }

  // By the mean of some data.
  void Multiply(pb::ProgramDesc* main) const {
    DeclareLike(kNewLoss, main);
    DeclareLike(kFactor, main);
    const int role = kRoleForward | kRoleLoss;
    pb::OpDesc mean = OpsOf(main)->Get(loss_.mean);
    SetArgs({loss_.data}, "X", mean.mutable_inputs());
    SetArgs({kFactor}, "Out", mean.mutable_outputs());
    SetInt(&mean, kOpRoleAttr, kRoleForward);
    const pb::OpDesc forward =
        OpWith("elementwise_mul", {{"X", loss_.loss}, {"Y", kFactor}}, {"Out", kNewLoss}, role);
    const pb::OpDesc backward = OpWith(
        "elementwise_mul_grad", {{"X", loss_.loss}, {"Y", kFactor}, {"Out@GRAD", GradOf(kNewLoss)}},
        {"X@GRAD", GradOf(loss_.loss)}, kRoleBackward);
    Insert({mean, forward}, backward, main);
  }

  static constexpr char kNewLoss[] = "new_loss";
  static constexpr char kFactor[] = "factor";

  const Model& model_;
  const pb::ProgramDesc main_;
  const LossOps loss_;
  std::vector<LossMutant> mutants_;
};

}  // namespace

std::vector<LossMutant> LossMutants(const Model& model) { return LossMutator(model).Run(); }

}  // namespace weft::testing
