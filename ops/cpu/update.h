// How to write the update of an optimizer: name its states, and provide a function for one
// parameter.
//
//   // m += g²; p -= lr g / (√m + epsilon).
//   absl::StatusOr<Kernel> Adagrad(const KernelSpec& spec, GradKind kind) {
//     return MakeUpdate(spec, kind, {{"Moment"}},
//                       [epsilon = spec.attrs.Float("epsilon")](auto& u) {
//                         using T = TypeOf<decltype(u)>;
//                         T* m = u.state(0);
//                         u.Apply([=, lr = u.lr()](T& p, T g, int64_t i) {
//                           m[i] += g * g;
//                           p -= lr * g / (std::sqrt(m[i]) + T(epsilon));
//                         });
//                       });
//   }
//
// Guarantees for such a function:
// - It works on the outputs, which hold the values of the inputs when it starts.
// - A parameter in half precision with a MasterParam is updated there, with state and gradient in
//   the master's type, and rounded afterwards: by Apply part by part, while the parts are in the
//   first cache. Without a MasterParam it is updated in fp32, like all half precision
//   (op_kernel.h). A gradient in half precision of a parameter in fp32 is converted part by part.
// - If slots hold several parameters (merged_adam, ...), it is called for each in turn.
// - States have the element type in which it computes, and the size of the parameter.
#ifndef WEFT_OPS_CPU_UPDATE_H_
#define WEFT_OPS_CPU_UPDATE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "ops/float16.h"
#include "ops/half_arrays.h"
#include "ops/kernel.h"
#include "ops/kernel_util.h"
#include "ops/merge_rows.h"
#include "ops/op_kernel.h"
#include "ops/tensor.h"
#include "ops/threads.h"
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

  // Whether the update visits all elements of the parameter.
  bool visits_all() const { return kind_ != Kind::kRows; }

  // Sets the gradient of a step, which must exist until the update is done, of an update in this
  // element type. InvalidArgument unless it has that, or half precision if that is fp32, and the
  // dimensions of the parameter (for a dense one: the size).
  absl::Status Read(const Tensor& grad, DType dtype, const Dims& dims);

  // Calls update(begin, count, g, has_grad) for runs of elements: the gradient of the parameter's
  // element begin + k is g[k], for k < count; zeros if there is none. In ascending order; no
  // element occurs twice.
  template <typename T, typename Update>
  void ForEachRun(const Update& update) const {
    if (kind_ == Kind::kDense) return update(int64_t{0}, dense_->size(), Dense<T>(), true);
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

  // The same in any order, also on several threads at once. A dense gradient in half precision is
  // converted block by block.
  template <typename T, typename Update>
  void ForEachBlock(const Update& update) const {
    if constexpr (std::is_same_v<T, float>) {
      if (kind_ == Kind::kDense && dense_->dtype() == DType::kFloat16) {
        return ForEachHalfBlock<Float16>(update);
      }
      if (kind_ == Kind::kDense && dense_->dtype() == DType::kBFloat16) {
        return ForEachHalfBlock<BFloat16>(update);
      }
    }
    ForEachRun<T>(update);
  }

  // Of elements of an array, so that those of all arrays of an update fit into the first cache.
  static constexpr int64_t kBlock = 1024;

  // Calls update(index, begin, count, g) for blocks of elements, as ForEachBlock, but for the same
  // blocks whatever the number of threads. Their indices are below NumBlocks.
  template <typename T, typename Update>
  void ForEachNumberedBlock(const Update& update) const {
    if (kind_ != Kind::kDense) {
      int64_t index = 0;
      return ForEachRun<T>([&](int64_t begin, int64_t count, const T* g, bool) {
        update(index++, begin, count, g);
      });
    }
    const int64_t size = dense_->size();
    ForEachPartIfLong(size, size, kBlock, [&](int64_t begin, int64_t end) {
      alignas(64) T block[kBlock];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t count = std::min(kBlock, end - i);
        update(i / kBlock, i, count, InType<T>(i, count, block));
      }
    });
  }
  int64_t NumBlocks() const {
    if (kind_ != Kind::kDense)
      return kind_ == Kind::kRows ? merged_.rows().size() : merged_.height();
    return (dense_->size() + kBlock - 1) / kBlock;
  }

 private:
  // Elements of the dense gradient: as they are, or converted into `block`.
  template <typename T>
  const T* InType(int64_t begin, int64_t count, T* block) const {
    if constexpr (std::is_same_v<T, float>) {
      if (IsHalf(dense_->dtype())) {
        if (dense_->dtype() == DType::kFloat16) {
          ConvertArray(dense_->data<Float16>() + begin, block, count);
        } else {
          ConvertArray(dense_->data<BFloat16>() + begin, block, count);
        }
        return block;
      }
    }
    return dense_->data<T>() + begin;
  }

  template <typename Half, typename Update>
  void ForEachHalfBlock(const Update& update) const {
    const Half* const halves = dense_->data<Half>();
    ForEachPartIfLong(dense_->size(), dense_->size(), 64, [&](int64_t begin, int64_t end) {
      alignas(64) float block[kBlock];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t count = std::min(kBlock, end - i);
        ConvertArray(halves + i, block, count);
        update(i, count, static_cast<const float*>(block), true);
      }
    });
  }

  // The dense gradient as a whole.
  template <typename T>
  const T* Dense() const {
    if constexpr (std::is_same_v<T, float>) {
      if (IsHalf(dense_->dtype())) {
        if (!is_converted_) {
          converted_.Resize(DType::kFloat32, dense_->dims());
          if (dense_->dtype() == DType::kFloat16) {
            ConvertArray(dense_->data<Float16>(), converted_.data<float>(), dense_->size());
          } else {
            ConvertArray(dense_->data<BFloat16>(), converted_.data<float>(), dense_->size());
          }
          is_converted_ = true;
        }
        return converted_.data<float>();
      }
    }
    return dense_->data<T>();
  }

  Kind kind_;
  const Tensor* dense_ = nullptr;
  // From half precision: rows, and a dense gradient that is asked for as a whole.
  mutable Tensor converted_;
  mutable bool is_converted_ = false;
  RowMerger merger_;
  Tensor merged_;
};

using GradKind = OptimizerGrad::Kind;

// Input slots of an update besides Param, MasterParam, Grad, LearningRate and SkipUpdate.
struct UpdateSlots {
  std::vector<const char*> states = {};     // with the parameter's shape; nullptr if missing
  std::vector<const char*> scalars = {};    // of one element
  std::vector<const char*> constants = {};  // others, which the update only reads
  // Of one element, which makes them scalars after those above, or with the parameter's shape,
  // which makes them states after those above.
  std::vector<const char*> powers = {};
};

// One parameter in one step.
template <typename T>
class ParamUpdate {
 public:
  using Type = T;

  // `rounded`: the parameter of which `param` is the master weight; null: there is none.
  ParamUpdate(const OptimizerGrad& grad, Tensor& param, Tensor* rounded, int index, double lr)
      : grad_(grad),
        param_(param.data<T>()),
        size_(param.size()),
        index_(index),
        lr_(static_cast<T>(lr)) {
    if (rounded != nullptr) RoundsTo(rounded);
  }

  // Of a parameter of zeros, in the type T or in half precision.
  static ParamUpdate FromZero(const OptimizerGrad& grad, Tensor& param, int index, double lr) {
    ParamUpdate update(grad, param.size(), index, lr);
    update.starts_from_zero_ = true;
    if (IsHalf(param.dtype())) {
      update.RoundsTo(&param);
    } else {
      update.param_ = param.data<T>();
    }
    return update;
  }

  void AddState(Tensor* tensor) {
    states_.push_back(tensor == nullptr ? nullptr : tensor->data<T>());
  }
  void AddScalar(double in, Tensor* out) { scalars_.push_back({in, out}); }
  void AddConstant(const Tensor& tensor) { constants_.push_back(&tensor); }

  T lr() const { return lr_; }
  int index() const { return index_; }  // among the parameters of the op
  int64_t size() const { return size_; }
  T* param() { return param_; }  // not of a parameter of zeros
  T* state(int k) { return states_[k]; }
  const Tensor& constant(int k) const { return *constants_[k]; }
  const OptimizerGrad& grad() const { return grad_; }

  int num_scalars() const { return static_cast<int>(scalars_.size()); }
  double scalar(int k) const { return scalars_[k].in; }
  void SetScalar(int k, double value) {
    Tensor* const out = scalars_[k].out;
    if (out->dtype() == DType::kFloat64) {
      *out->data<double>() = value;
    } else {
      *out->data<float>() = static_cast<float>(value);
    }
  }

  // Whether the parameter of the master weight is up to date.
  bool is_rounded() const { return is_rounded_; }

  // Calls update(p, g, i) for the elements that the gradient visits, in any order: T& p is the
  // parameter's element i, T g its gradient. A call reads and writes element i alone.
  template <typename Update>
  void ForEach(Update update) {
    ForEachRun([=](T* p, const T* g, int64_t begin, int64_t count, bool) {
      weft::ForEach<T>(count, [=](int64_t k) { update(p[begin + k], g[k], begin + k); });
    });
  }
  // The same, as the last that the update does to the parameter.
  template <typename Update>
  void Apply(Update update) {
    ApplyToRuns([=](T* p, const T* g, int64_t begin, int64_t count, bool) {
      weft::ForEach<T>(count, [=](int64_t k) { update(p[k], g[k], begin + k); });
    });
  }
  // The same for all elements, without their gradients: update(p, i).
  template <typename Update>
  void ApplyToAll(Update update) {
    T* const p = param_;
    const bool rounds = half_ != nullptr || bfloat16_ != nullptr;
    if (!rounds) return weft::ForEach<T>(size_, [=](int64_t i) { update(p[i], i); });
    constexpr int64_t kBlock = OptimizerGrad::kBlock;
    ForEachPartIfLong(size_, size_, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t count = std::min(kBlock, end - i);
        weft::ForEach<T>(count, [=](int64_t k) { update(p[i + k], i + k); });
        Round(p + i, i, count);
      }
    });
    is_rounded_ = true;
  }
  // The same for runs of elements: update(p, g, begin, count, has_grad), on several threads at
  // once. The parameter's element begin + k is p[k], and its gradient g[k], k < count; zeros for
  // rows without a gradient.
  template <typename Update>
  void ApplyToRuns(const Update& update) {
    if constexpr (std::is_same_v<T, float>) {
      if (starts_from_zero_) return ApplyToZeros(update);
    }
    T* const p = param_;
    grad_.ForEachBlock<T>([&](int64_t begin, int64_t count, const T* g, bool has_grad) {
      update(p + begin, g, begin, count, has_grad);
      Round(p + begin, begin, count);
    });
    is_rounded_ = grad_.visits_all() && (half_ != nullptr || bfloat16_ != nullptr);
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

  ParamUpdate(const OptimizerGrad& grad, int64_t size, int index, double lr)
      : grad_(grad), size_(size), index_(index), lr_(static_cast<T>(lr)) {}

  void RoundsTo(Tensor* rounded) {
    if (!std::is_same_v<T, float>) return;
    if (rounded->dtype() == DType::kFloat16) half_ = rounded->data<Float16>();
    if (rounded->dtype() == DType::kBFloat16) bfloat16_ = rounded->data<BFloat16>();
  }

  // Writes `from`, elements that the update has computed, to the parameter in half precision.
  void Round(const T* from, int64_t begin, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      if (half_ != nullptr) ConvertArray(from, half_ + begin, count);
      if (bfloat16_ != nullptr) ConvertArray(from, bfloat16_ + begin, count);
    }
  }

  // Block by block, so that what is not rounded yet stays in the first cache.
  template <typename Update>
  void ApplyToZeros(const Update& update) {
    grad_.ForEachNumberedBlock<T>([&](int64_t, int64_t begin, int64_t count, const T* g) {
      alignas(64) T block[OptimizerGrad::kBlock];
      T* const p = param_ == nullptr ? block : param_ + begin;
      std::fill_n(p, count, T(0));
      update(p, g, begin, count, true);
      Round(p, begin, count);
    });
    is_rounded_ = true;
  }

  const OptimizerGrad& grad_;
  T* param_ = nullptr;
  const int64_t size_;
  const int index_;
  const T lr_;
  // Of the parameter, if this updates its master weight, or zeros.
  Float16* half_ = nullptr;
  BFloat16* bfloat16_ = nullptr;
  bool is_rounded_ = false;
  bool starts_from_zero_ = false;
  absl::InlinedVector<T*, 4> states_;
  absl::InlinedVector<Scalar, 4> scalars_;
  absl::InlinedVector<const Tensor*, 2> constants_;
};

// In an update function: the type in which it computes.
template <typename Update>
using TypeOf = typename std::decay_t<Update>::Type;

// The code around the function: slots, checks, copies of variables that are not updated in place,
// half precision, parameters of zeros (KernelSpec::starts_from_zero).
class UpdateFrame {
 public:
  static absl::StatusOr<UpdateFrame> Make(OpKernel& op, const KernelSpec& spec, GradKind kind,
                                          const UpdateSlots& slots);

  bool has_master() const { return static_cast<bool>(master_.in); }
  In grad() const { return grad_; }

  template <typename Step>
  absl::Status Run(const KernelContext& ctx, Step& step) {
    WEFT_ASSIGN_OR_RETURN(const bool skip, CopyToOutputs(ctx));
    if (starts_from_zero_) return skip ? ClearParams(ctx) : RunFromZero(ctx, step);
    if (skip) return absl::OkStatus();
    for (int i = 0; i < param_.out.count(); ++i) {
      Tensor& param = has_master() ? master_.out(ctx, i) : param_.out(ctx, i);
      if (has_master()) {
        WEFT_RETURN_IF_ERROR(CheckSize("MasterParam", param, param_.in(ctx, i).size()));
      }
      WEFT_RETURN_IF_ERROR(Check(ctx, i, {param.dtype(), param.dims()}));
      WEFT_ASSIGN_OR_RETURN(const double lr, LearningRate(ctx, i));
      bool is_rounded = false;
      Tensor* const rounded = has_master() ? &param_.out(ctx, i) : nullptr;
      WEFT_RETURN_IF_ERROR(ForFloatType("input Param", param, [&](auto tag) -> absl::Status {
        ParamUpdate<typename decltype(tag)::type> update(grads_[i], param, rounded, i, lr);
        WEFT_RETURN_IF_ERROR(RunOne(ctx, i, step, &update));
        is_rounded = update.is_rounded();
        return absl::OkStatus();
      }));
      if (!has_master() || is_rounded) continue;
      WEFT_RETURN_IF_ERROR(ConvertFloats("input MasterParam", param, "input Param", rounded));
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

  template <typename Step>
  absl::Status RunFromZero(const KernelContext& ctx, Step& step) {
    for (int i = 0; i < param_.out.count(); ++i) {
      Tensor& param = param_.out(ctx, i);
      WEFT_RETURN_IF_ERROR(Check(ctx, i, {DType::kFloat32, param.dims()}));
      WEFT_ASSIGN_OR_RETURN(const double lr, LearningRate(ctx, i));
      auto update = ParamUpdate<float>::FromZero(grads_[i], param, i, lr);
      WEFT_RETURN_IF_ERROR(RunOne(ctx, i, step, &update));
      if (!update.is_rounded()) return absl::InternalError("the update has not written its result");
    }
    return absl::OkStatus();
  }

  // With states, scalars and constants.
  template <typename Update, typename Step>
  absl::Status RunOne(const KernelContext& ctx, int i, Step& step, Update* update) {
    for (const State& state : states_) update->AddState(state.out.get(ctx, i));
    for (const State& scalar : scalars_) {
      WEFT_ASSIGN_OR_RETURN(const double value, ScalarValue(scalar.slot, scalar.in(ctx, i)));
      update->AddScalar(value, scalar.out.get(ctx, i));
    }
    const bool by_elements = !powers_.empty() && powers_[0].in(ctx, i).size() != 1;
    for (const State& power : powers_) {
      if (by_elements) {
        WEFT_RETURN_IF_ERROR(
            CheckState(ctx, i, power, DTypeOf<TypeOf<Update>>::value, update->size()));
        update->AddState(power.out.get(ctx, i));
      } else {
        WEFT_ASSIGN_OR_RETURN(const double value, ScalarValue(power.slot, power.in(ctx, i)));
        update->AddScalar(value, power.out.get(ctx, i));
      }
    }
    for (const In& constant : constants_) update->AddConstant(constant(ctx, i));
    return CallForStatus(step, *update);
  }

  static State MakeState(OpKernel& op, const KernelSpec& spec, const char* slot);
  // True if the update must be skipped.
  absl::StatusOr<bool> CopyToOutputs(const KernelContext& ctx) const;
  absl::Status ClearParams(const KernelContext& ctx) const;
  // `type`: of the parameter, in which the update computes. Reads the gradient.
  absl::Status Check(const KernelContext& ctx, int i, const TensorType& type);
  static absl::Status CheckState(const KernelContext& ctx, int i, const State& state, DType dtype,
                                 int64_t size);
  absl::StatusOr<double> LearningRate(const KernelContext& ctx, int i) const;

  State param_, master_;  // param_.in: empty if the update starts from zeros
  In grad_, learning_rate_, skip_;
  std::vector<State> states_, scalars_, powers_;
  std::vector<In> constants_;
  std::vector<OptimizerGrad> grads_;
  bool starts_from_zero_ = false;
};

template <typename Step>
absl::StatusOr<Kernel> MakeUpdate(OpKernel& op, GradKind kind, const UpdateSlots& slots,
                                  Step step) {
  const KernelSpec& spec = op.spec();
  WEFT_ASSIGN_OR_RETURN(UpdateFrame frame, UpdateFrame::Make(op, spec, kind, slots));
  if (frame.has_master() || spec.starts_from_zero) op.WithoutHalfConversion();
  op.TakesHalves(frame.grad());
  const auto run = [frame = std::move(frame), step](const KernelContext& ctx) mutable {
    return frame.Run(ctx, step);
  };
  op.Supports(ElementTypesOf<Float16, BFloat16, float, double>());
  return kind == GradKind::kDense ? op.Make(run) : op.MakeForRows(run);
}

// The kernel that calls step(u) with a ParamUpdate<T>& u for every parameter; step returns
// absl::Status or nothing.
template <typename Step>
absl::StatusOr<Kernel> MakeUpdate(const KernelSpec& spec, GradKind kind, const UpdateSlots& slots,
                                  Step step) {
  OpKernel op(spec);
  return MakeUpdate(op, kind, slots, std::move(step));
}

// The same for a step that accesses parameters by one call of Apply or ApplyToRuns alone. With
// dense gradients, the kernel can start from zeros.
template <typename Step>
absl::StatusOr<Kernel> MakeAppliedUpdate(const KernelSpec& spec, GradKind kind,
                                         const UpdateSlots& slots, Step step) {
  OpKernel op(spec);
  if (spec.starts_from_zero && kind == GradKind::kDense) op.StartsFromZero();
  return MakeUpdate(op, kind, slots, std::move(step));
}

using UpdateFactory = absl::StatusOr<Kernel> (*)(const KernelSpec&, GradKind);

// Adds the update by dense gradients and, unless `rows` is kDense, by row-sparse ones of that kind.
void AddUpdate(KernelTable* table, const char* type, UpdateFactory factory,
               GradKind rows = GradKind::kDense);

}  // namespace weft

#endif  // WEFT_OPS_CPU_UPDATE_H_
