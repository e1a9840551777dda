// How to write the update of an optimizer: name its states, and provide a function for one
// parameter.
//
//   // m += g²; p -= lr g / (√m + epsilon).
//   absl::StatusOr<Kernel> Adagrad(const KernelSpec& spec, GradKind kind) {
//     return MakeUpdate(spec, kind, {{"Moment"}},
//                       [epsilon = spec.attrs.Float("epsilon")](auto& u) {
//                         using T = typename std::decay_t<decltype(u)>::Type;
//                         T* m = u.state(0);
//                         u.ForEach([&](T& p, T g, int64_t i) {
//                           m[i] += g * g;
//                           p -= u.lr() * g / (std::sqrt(m[i]) + T(epsilon));
//                         });
//                       });
//   }
//
// Guarantees for such a function:
// - It works on the outputs, which hold the values of the inputs when it starts.
// - A parameter in half precision with a MasterParam is updated there, with state and gradient in
//   the master's type, and rounded afterwards. Without one it is updated in fp32, like all half
//   precision (op_kernel.h).
// - If slots hold several parameters (merged_adam, ...), it is called for each in turn.
// - States have the element type in which it computes, and the size of the parameter.
#ifndef WEFT_OPS_CPU_UPDATE_H_
#define WEFT_OPS_CPU_UPDATE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ops/cpu/optimizer_grad.h"
#include "ops/kernel.h"
#include "ops/op_kernel.h"
#include "ops/tensor.h"

namespace weft {

using GradKind = OptimizerGrad::Kind;

// Input slots of an update besides Param, MasterParam, Grad, LearningRate and SkipUpdate.
struct UpdateSlots {
  std::vector<const char*> states = {};   // with the parameter's shape; nullptr if missing
  std::vector<const char*> scalars = {};  // of one element
};

// One parameter in one step.
template <typename T>
class ParamUpdate {
 public:
  using Type = T;

  ParamUpdate(const KernelContext& ctx, const OptimizerGrad& grad, Tensor& param, int index,
              double lr)
      : ctx_(ctx),
        grad_(grad),
        param_(param.data<T>()),
        size_(param.size()),
        index_(index),
        lr_(static_cast<T>(lr)) {}

  void AddState(Tensor* tensor) {
    states_.push_back(tensor == nullptr ? nullptr : tensor->data<T>());
  }
  void AddScalar(double in, Tensor* out) { scalars_.push_back({in, out}); }

  const KernelContext& ctx() const { return ctx_; }
  T lr() const { return lr_; }
  int index() const { return index_; }  // among the parameters of the op
  int64_t size() const { return size_; }
  T* param() { return param_; }
  T* state(int k) { return states_[k]; }
  const OptimizerGrad& grad() const { return grad_; }

  double scalar(int k) const { return scalars_[k].in; }
  void SetScalar(int k, double value) {
    Tensor* const out = scalars_[k].out;
    if (out->dtype() == DType::kFloat64) {
      *out->data<double>() = value;
    } else {
      *out->data<float>() = static_cast<float>(value);
    }
  }

  // Calls update(p, g, i) for the elements that the gradient visits: T& p is the parameter's
  // element i, T g its gradient.
  template <typename Update>
  void ForEach(Update update) {
    ForEachRun([&](T* p, const T* g, int64_t begin, int64_t count, bool) {
      for (int64_t k = 0, i = begin; k < count; ++k, ++i) update(p[i], g[k], i);
    });
  }
  // Calls update(p, g, begin, count, has_grad) for runs of elements: g[k] is the gradient of
  // p[begin + k], k < count; zeros for rows without a gradient.
  template <typename Update>
  void ForEachRun(Update update) {
    grad_.ForEachRun<T>([&](int64_t begin, int64_t count, const T* g, bool has_grad) {
      update(param_, g, begin, count, has_grad);
    });
  }

 private:
  struct Scalar {
    double in;
    Tensor* out;
  };

  const KernelContext& ctx_;
  const OptimizerGrad& grad_;
  T* const param_;
  const int64_t size_;
  const int index_;
  const T lr_;
  std::vector<T*> states_;
  std::vector<Scalar> scalars_;
};

// The code around the function: slots, checks, copies of variables that are not updated in place,
// half precision.
class UpdateFrame {
 public:
  static absl::StatusOr<UpdateFrame> Make(OpKernel& op, const KernelSpec& spec, GradKind kind,
                                          const UpdateSlots& slots);

  bool has_master() const { return static_cast<bool>(master_.in); }

  template <typename Step>
  absl::Status Run(const KernelContext& ctx, Step& step) {
    WEFT_ASSIGN_OR_RETURN(const bool skip, CopyToOutputs(ctx));
    if (skip) return absl::OkStatus();
    for (int i = 0; i < param_.in.count(); ++i) {
      Tensor& param = has_master() ? master_.out(ctx, i) : param_.out(ctx, i);
      WEFT_RETURN_IF_ERROR(Check(ctx, i, param));
      WEFT_RETURN_IF_ERROR(grads_[i].Read(grad_(ctx, i), param));
      WEFT_ASSIGN_OR_RETURN(const double lr, LearningRate(ctx, i));
      WEFT_RETURN_IF_ERROR(ForFloatType("input Param", param, [&](auto tag) -> absl::Status {
        ParamUpdate<typename decltype(tag)::type> update(ctx, grads_[i], param, i, lr);
        for (const State& state : states_) update.AddState(state.out.get(ctx, i));
        for (const State& scalar : scalars_) {
          WEFT_ASSIGN_OR_RETURN(const double value, ScalarValue(scalar.slot, scalar.in(ctx, i)));
          update.AddScalar(value, scalar.out.get(ctx, i));
        }
        return CallForStatus(step, update);
      }));
      if (has_master()) WEFT_RETURN_IF_ERROR(Round(param, &param_.out(ctx, i)));
    }
    return absl::OkStatus();
  }

 private:
  // A tensor that is both input and output, mostly in place.
  struct State {
    std::string slot;
    In in;
    Out out;
  };

  static State MakeState(OpKernel& op, const KernelSpec& spec, const char* slot);
  // True if the update must be skipped.
  absl::StatusOr<bool> CopyToOutputs(const KernelContext& ctx) const;
  absl::Status Check(const KernelContext& ctx, int i, const Tensor& param) const;
  absl::StatusOr<double> LearningRate(const KernelContext& ctx, int i) const;
  // Writes fp32 elements to a parameter of any floating-point type.
  static absl::Status Round(const Tensor& from, Tensor* to);

  State param_, master_;
  In grad_, learning_rate_, skip_;
  std::vector<State> states_, scalars_;
  std::vector<OptimizerGrad> grads_;
};

// The kernel that calls step(u) with a ParamUpdate<T>& u for every parameter; step returns
// absl::Status or nothing.
template <typename Step>
absl::StatusOr<Kernel> MakeUpdate(const KernelSpec& spec, GradKind kind, const UpdateSlots& slots,
                                  Step step) {
  OpKernel op(spec);
  WEFT_ASSIGN_OR_RETURN(UpdateFrame frame, UpdateFrame::Make(op, spec, kind, slots));
  if (frame.has_master()) op.WithoutHalfConversion();
  const auto run = [frame = std::move(frame), step](const KernelContext& ctx) mutable {
    return frame.Run(ctx, step);
  };
  op.Supports(ElementTypesOf<Float16, BFloat16, float, double>());
  return kind == GradKind::kDense ? op.Make(run) : op.MakeForRows(run);
}

}  // namespace weft

#endif  // WEFT_OPS_CPU_UPDATE_H_
