// How to write the update of an optimizer: name its states, and provide a function for one
// parameter.
//
//   // m += g²; p -= lr g / (√m + epsilon).
//   absl::StatusOr<Kernel> Adagrad(const KernelSpec& spec, GradKind kind) {
//     return MakeUpdate(spec, kind, {{"Moment"}},
//                       [epsilon = spec.attrs.Float("epsilon")](auto& u) {
//                         using T = TypeOf<decltype(u)>;
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
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ops/kernel.h"
#include "ops/merge_rows.h"
#include "ops/op_kernel.h"
#include "ops/tensor.h"
#include "ops/vectorize.h"

namespace weft {

// The gradient that an update reads: of every element of the parameter, or of some rows.
// Keeps its buffers from step to step.
class OptimizerGrad {
 public:
  enum class Kind {
    kDense,
    // SelectedRows, with rows of the same index added. The update visits these rows alone,
    kRows,
    // or all rows of the parameter, with zeros as the gradient of the others.
    kRowsAmongAll,
    // The same, but if no row occurs twice, some rows are lost: those that a binary search through
    // the unsorted rows misses.
    kSearchedRows,
  };

  explicit OptimizerGrad(Kind kind) : kind_(kind) {}

  // Whether the gradient is row-sparse and has no rows.
  bool is_empty() const { return kind_ != Kind::kDense && merged_.rows().empty(); }

  // Sets the gradient of a step, which must exist until the update is done. InvalidArgument unless
  // it has the element type of the parameter, or half precision if that is fp32, and the dimensions
  // of the parameter (for a dense one: the size).
  absl::Status Read(const Tensor& grad, const Tensor& param);

  // Calls update(begin, count, g, has_grad) for runs of elements: the gradient of the parameter's
  // element begin + k is g[k], for k < count; zeros if there is none. In ascending order; no
  // element occurs twice.
  template <typename T, typename Update>
  void ForEachRun(const Update& update) const {
    if (kind_ == Kind::kDense) return update(int64_t{0}, dense_->size(), dense_->data<T>(), true);
    const int64_t width = merged_.row_size();
    const T* g = merged_.data<T>();
    if (kind_ == Kind::kRows) {
      for (int64_t row : merged_.rows()) {
        update(row * width, width, g, true);
        g += width;
      }
      return;
    }
    const std::vector<T> zeros(width);
    auto next = merged_.rows().begin();
    for (int64_t row = 0; row < merged_.height(); ++row) {
      const bool has_grad = next != merged_.rows().end() && *next == row;
      update(row * width, width, has_grad ? g : zeros.data(), has_grad);
      if (!has_grad) continue;
      g += width;
      ++next;
    }
  }

 private:
  Kind kind_;
  const Tensor* dense_ = nullptr;
  Tensor converted_;  // from half precision
  RowMerger merger_;
  Tensor merged_;
};

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

  ParamUpdate(const OptimizerGrad& grad, Tensor& param, int index, double lr)
      : grad_(grad),
        param_(param.data<T>()),
        size_(param.size()),
        index_(index),
        lr_(static_cast<T>(lr)) {}

  void AddState(Tensor* tensor) {
    states_.push_back(tensor == nullptr ? nullptr : tensor->data<T>());
  }
  void AddScalar(double in, Tensor* out) { scalars_.push_back({in, out}); }

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

  // Calls update(p, g, i) for the elements that the gradient visits, in any order: T& p is the
  // parameter's element i, T g its gradient. A call reads and writes element i alone.
  template <typename Update>
  void ForEach(Update update) {
    ForEachRun([=](T* p, const T* g, int64_t begin, int64_t count, bool) {
      weft::ForEach<T>(count, [=](int64_t k) { update(p[begin + k], g[k], begin + k); });
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

  const OptimizerGrad& grad_;
  T* const param_;
  const int64_t size_;
  const int index_;
  const T lr_;
  absl::InlinedVector<T*, 4> states_;
  absl::InlinedVector<Scalar, 4> scalars_;
};

// In an update function: the type in which it computes.
template <typename Update>
using TypeOf = typename std::decay_t<Update>::Type;

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
        ParamUpdate<typename decltype(tag)::type> update(grads_[i], param, i, lr);
        for (const State& state : states_) update.AddState(state.out.get(ctx, i));
        for (const State& scalar : scalars_) {
          WEFT_ASSIGN_OR_RETURN(const double value, ScalarValue(scalar.slot, scalar.in(ctx, i)));
          update.AddScalar(value, scalar.out.get(ctx, i));
        }
        return CallForStatus(step, update);
      }));
      if (!has_master()) continue;
      WEFT_RETURN_IF_ERROR(
          ConvertFloats("input MasterParam", param, "input Param", &param_.out(ctx, i)));
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

using UpdateFactory = absl::StatusOr<Kernel> (*)(const KernelSpec&, GradKind);

// Adds the update by dense gradients and, unless `rows` is kDense, by row-sparse ones of that kind.
void AddUpdate(KernelTable* table, const char* type, UpdateFactory factory,
               GradKind rows = GradKind::kDense);

}  // namespace weft

#endif  // WEFT_OPS_CPU_UPDATE_H_
