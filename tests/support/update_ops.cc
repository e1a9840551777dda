#include "tests/support/update_ops.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/op_role.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using Dims64 = std::vector<int64_t>;
using DataType = pb::VarType::Type;
using Slots = ProgramBuilder::Slots;

class UpdateOps {
 public:
  UpdateOps(const TrainingSpec& spec, ProgramPairBuilder* pair)
      : spec_(spec), pair_(*pair), main_(pair->main) {}

  void ChangeLearningRate() {
    if (spec_.learning_rate == LearningRateKind::kConstant) return;
    if (spec_.learning_rate == LearningRateKind::kDecayed) {
      Decay(kLearningRate, 0.75f, kRoleLrSched);
      return;
    }
    Branch(CountSteps("halve", 2, kRoleLrSched), {kLearningRate}, kRoleLrSched);
    Decay(kLearningRate, 0.5f, kRoleLrSched);
    main_.InBlock(0);
  }

  void Update(const std::string& suffix, std::vector<ParamGradient> gradients) {
    if (spec_.merged_steps == 1) {
      UpdateNow(suffix, std::move(gradients));
      return;
    }
    std::vector<std::string> touched;
    for (ParamGradient& gradient : gradients) {
      const TrainedParam& param = gradient.param;
      const std::string total = absl::StrCat(param.name, "@MERGED", suffix);
      pair_.State(total, param.dims, param.type, 0);
      main_.Op("elementwise_add", {{"X", {total}}, {"Y", {gradient.grad}}}, {{"Out", {total}}},
               kRoleBackward);
      main_.IntAttr("axis", -1).Pairs({param.name, total});
      gradient.grad = total;
      touched.push_back(total);
      touched.push_back(param.name);
    }
    const std::string due = CountSteps("merge" + suffix, spec_.merged_steps, kRoleOptimize);
    Branch(due, touched, kRoleOptimize);
    for (const ParamGradient& gradient : gradients) {
      Decay(gradient.grad, 1.0f / static_cast<float>(spec_.merged_steps), kRoleOptimize);
    }
    UpdateNow(suffix, gradients);
    for (const ParamGradient& gradient : gradients) {
      const TrainedParam& param = gradient.param;
      FillConstant(&main_, gradient.grad, param.dims, param.type, 0, kRoleOptimize);
    }
    main_.InBlock(0);
  }

 private:
  void Decay(const std::string& what, float factor, int role) {
    main_.Op("scale", {{"X", {what}}}, {{"Out", {what}}}, role).FloatAttr("scale", factor);
  }

  // Counts steps, from 1. The variable that is true where the number is a multiple of `every`.
  std::string CountSteps(const std::string& prefix, int every, int role) {
    const std::string counter = prefix + "_step", rest = prefix + "_rest", due = prefix + "_due";
    const std::string divisor = prefix + "_every", none = prefix + "_none";
    pair_.State(counter, {1}, pb::VarType::INT64, 0);
    main_.Op("increment", {{"X", {counter}}}, {{"Out", {counter}}}, role).FloatAttr("step", 1);
    for (const std::string& name : {divisor, none, rest}) {
      main_.Var(name, {1}, pb::VarType::INT64);
    }
    FillConstant(&main_, divisor, {1}, pb::VarType::INT64, every, role);
    FillConstant(&main_, none, {1}, pb::VarType::INT64, 0, role);
    main_.Op("elementwise_mod", {{"X", {counter}}, {"Y", {divisor}}}, {{"Out", {rest}}}, role);
    main_.IntAttr("axis", -1);
    main_.Var(due, {1}, pb::VarType::BOOL);
    main_.Op("equal", {{"X", {rest}}, {"Y", {none}}}, {{"Out", {due}}}, role);
    return due;
  }

  // What follows goes to the block, until InBlock(0).
  void Branch(const std::string& condition, const std::vector<std::string>& touched, int role) {
    main_.Var(condition + "_scope");
    main_.last_var().mutable_type()->Clear();
    main_.last_var().mutable_type()->set_type(pb::VarType::STEP_SCOPES);
    main_.Op("conditional_block", {{"Cond", {condition}}, {"Input", touched}},
             {{"Out", touched}, {"Scope", {condition + "_scope"}}}, role);
    main_.BoolAttr("is_scalar_condition", true).BlockAttr("sub_block", main_.desc().blocks_size());
    main_.NewBlock(0);
  }

  void UpdateNow(const std::string& suffix, std::vector<ParamGradient> gradients) {
    if (spec_.l2_decay) AddL2Decay(suffix, &gradients);
    ClipAll(suffix, &gradients);
    for (const ParamGradient& gradient : gradients) Optimize(suffix, gradient);
  }

  // An op between gradient and optimizer.
  void Regular(const std::string& type, const Slots& ins, const std::string& out,
               const ParamGradient& gradient) {
    main_.Op(type, ins, {{"Out", {out}}}, kRoleOptimize);
    main_.Pairs({gradient.param.name, gradient.grad});
  }

  // A name for a new value of the gradient: its own, or that of a new variable.
  std::string Next(const ParamGradient& gradient, const std::string& suffix) {
    if (spec_.clips_in_place) return gradient.grad;
    const TrainedParam& param = gradient.param;
    main_.Var(gradient.grad + suffix, param.dims, param.type);
    return gradient.grad + suffix;
  }

  void AddL2Decay(const std::string& suffix, std::vector<ParamGradient>* gradients) {
    for (ParamGradient& gradient : *gradients) {
      const TrainedParam& param = gradient.param;
      if (param.sparse_gradient) continue;
      const std::string decay = absl::StrCat(param.name, "@L2", suffix);
      main_.Var(decay, param.dims, param.type);
      Regular("scale", {{"X", {param.name}}}, decay, gradient);
      main_.FloatAttr("scale", 0.1f);
      const std::string next = Next(gradient, absl::StrCat("@DECAYED", suffix));
      Regular("sum", {{"X", {gradient.grad, decay}}}, next, gradient);
      gradient.grad = next;
    }
  }

  void ClipAll(const std::string& suffix, std::vector<ParamGradient>* gradients) {
    if (spec_.clip == ClipKind::kNone) return;
    std::map<DataType, std::string> factors;
    if (spec_.clip == ClipKind::kByGlobalNorm) factors = GlobalNormFactors(suffix, *gradients);
    for (ParamGradient& gradient : *gradients) {
      const TrainedParam& param = gradient.param;
      if (param.sparse_gradient) continue;
      const std::string next = Next(gradient, absl::StrCat("@CLIP", suffix));
      if (spec_.clip == ClipKind::kByValue) {
        Regular("clip", {{"X", {gradient.grad}}}, next, gradient);
        main_.FloatAttr("min", -0.1f).FloatAttr("max", 0.1f);
      } else if (spec_.clip == ClipKind::kByNorm) {
        Regular("clip_by_norm", {{"X", {gradient.grad}}}, next, gradient);
        main_.FloatAttr("max_norm", 0.1f);
      } else {
        Regular("elementwise_mul", {{"X", {gradient.grad}}, {"Y", {factors.at(param.type)}}}, next,
                gradient);
        main_.IntAttr("axis", -1);
      }
      gradient.grad = next;
    }
  }

  // max_norm / max(norm, max_norm), by element type of the gradients that it multiplies.
  std::map<DataType, std::string> GlobalNormFactors(const std::string& suffix,
                                                    const std::vector<ParamGradient>& gradients) {
    const DataType type = pb::VarType::FP64;
    std::vector<std::string> squares;
    std::set<DataType> types;
    const auto new_var = [&](const std::string& name, DataType var_type) {
      main_.Var(name, {1}, var_type);
      return name;
    };
    const auto cast = [&](const std::string& from, const std::string& to, DataType from_type,
                          DataType to_type) {
      main_.Op("cast", {{"X", {from}}}, {{"Out", {new_var(to, to_type)}}}, kRoleOptimize);
      main_.IntAttr("in_dtype", from_type).IntAttr("out_dtype", to_type);
    };
    for (const ParamGradient& gradient : gradients) {
      const TrainedParam& param = gradient.param;
      if (param.sparse_gradient) continue;
      types.insert(param.type);
      const std::string square = absl::StrCat(gradient.grad, "@SQUARE", suffix);
      Regular("squared_l2_norm", {{"X", {gradient.grad}}}, new_var(square, param.type), gradient);
      squares.push_back(square);
      if (param.type == type) continue;
      squares.back() += "@FP64";
      cast(square, squares.back(), param.type, type);
    }
    std::map<DataType, std::string> factors;
    if (squares.empty()) return factors;
    const std::string clip = absl::StrCat("global_norm", suffix);
    main_.Op("sum", {{"X", squares}}, {{"Out", {new_var(clip + ".sum", type)}}}, kRoleOptimize);
    main_.Op("sqrt", {{"X", {clip + ".sum"}}}, {{"Out", {new_var(clip, type)}}}, kRoleOptimize);
    FillConstant(&main_, new_var(clip + ".max", type), {1}, type, 0.1f, kRoleOptimize);
    main_.Op("elementwise_max", {{"X", {clip + ".max"}}, {"Y", {clip}}},
             {{"Out", {new_var(clip + ".divisor", type)}}}, kRoleOptimize);
    main_.Op("elementwise_div", {{"X", {clip + ".max"}}, {"Y", {clip + ".divisor"}}},
             {{"Out", {new_var(clip + ".factor", type)}}}, kRoleOptimize);
    for (DataType wanted : types) {
      factors[wanted] = clip + ".factor";
      if (wanted == type) continue;
      factors[wanted] += "@FP32";
      cast(clip + ".factor", factors[wanted], type, wanted);
    }
    return factors;
  }

  void Optimize(const std::string& suffix, const ParamGradient& gradient) {
    const TrainedParam& param = gradient.param;
    Slots ins = {
        {"Param", {param.name}}, {"Grad", {gradient.grad}}, {"LearningRate", {kLearningRate}}};
    Slots outs = {{"ParamOut", {param.name}}};
    // Optimizers are created in the root block.
    const int block = spec_.merged_steps > 1 ? main_.desc().blocks_size() - 1 : 0;
    main_.InBlock(0);
    const auto add_state = [&](const std::string& slot, const Dims64& dims, float value) {
      const std::string name = absl::StrCat(param.name, "_", slot, suffix);
      pair_.State(name, dims, param.type, value);
      ins.push_back({slot, {name}});
      outs.push_back({slot + "Out", {name}});
    };
    static const char* const kTypes[] = {"sgd", "momentum", "adam", "lamb", "lars_momentum"};
    const OptimizerKind kind = param.is_bias ? spec_.biases_by : spec_.weights_by;
    const bool has_velocity = kind == OptimizerKind::kMomentum || kind == OptimizerKind::kLars;
    const bool has_moments = kind == OptimizerKind::kAdam || kind == OptimizerKind::kLamb;
    if (has_velocity) add_state("Velocity", param.dims, 0);
    if (has_moments) {
      add_state("Moment1", param.dims, 0);
      add_state("Moment2", param.dims, 0);
      add_state("Beta1Pow", {1}, 0.9f);
      add_state("Beta2Pow", {1}, 0.99f);
    }
    main_.InBlock(block);
    main_.Op(kTypes[static_cast<int>(kind)], ins, outs, kRoleOptimize);
    main_.Pairs({param.name, gradient.grad});
    if (has_velocity) main_.FloatAttr("mu", 0.5f);
    if (kind == OptimizerKind::kLamb) main_.FloatAttr("weight_decay", 0.1f);
    if (has_moments) {
      // An epsilon that large keeps the rounding of small gradients small.
      main_.FloatAttr("beta1", 0.9f).FloatAttr("beta2", 0.99f).FloatAttr("epsilon", 0.1f);
    }
  }

  const TrainingSpec& spec_;
  ProgramPairBuilder& pair_;
  ProgramBuilder& main_;
};

}  // namespace

void AppendLearningRate(const TrainingSpec& spec, ProgramPairBuilder* pair) {
  pair->State(kLearningRate, {1}, pb::VarType::FP32, 0.1f);
  UpdateOps(spec, pair).ChangeLearningRate();
}

void AppendUpdates(const TrainingSpec& spec, const std::string& suffix,
                   const std::vector<ParamGradient>& gradients, ProgramPairBuilder* pair) {
  UpdateOps(spec, pair).Update(suffix, gradients);
}

}  // namespace weft::testing
