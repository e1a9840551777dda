// Updates by gradients that are SelectedRows: the kernels for dense tensors run on the rows, or on
// a gradient with zeros in the other rows. Indices are on the host, which does not wait for the
// stream.
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ops/bound_kernel.h"
#include "ops/formulas/update.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/row_merger.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- sgd: in place, whatever the size of the table -----------------------------------------------

// Element i of the rows, none of which occurs twice.
template <typename T>
struct UpdateOfRow {
  formulas::Sgd f;
  int64_t width;
  const int64_t* rows;
  const T *rate, *grad;
  T* param;
  WEFT_DEVICE void operator()(int64_t i) const {
    f(*rate, param[rows[i / width] * width + i % width], grad[i]);
  }
};

absl::StatusOr<Kernel> SgdOfRows(OpKernel op) {
  const In param = op.in("Param"), grad = op.in("Grad"), rate = op.in("LearningRate");
  const Out out = op.out("ParamOut");
  return op.MakeForRows([=, f = formulas::Sgd(op.attrs()), merger = GpuRowMerger(),
                         merged = Tensor(),
                         indices = Tensor()](const KernelContext& ctx) mutable -> absl::Status {
    const Tensor& p = param(ctx);
    if (p.is_rows()) return absl::UnimplementedError("input Param: expected a tensor, found rows");
    WEFT_RETURN_IF_ERROR(CheckIsRows("Grad", grad(ctx)));
    WEFT_RETURN_IF_ERROR(CheckRowsOf("Grad", grad(ctx), p.dtype(), p.dims()));
    WEFT_RETURN_IF_ERROR(CheckDType("LearningRate", rate(ctx), p.dtype()));
    WEFT_RETURN_IF_ERROR(CheckSize("LearningRate", rate(ctx), 1));
    if (&out(ctx) != &p) {
      out(ctx).Resize(p.dtype(), p.dims());
      WEFT_RETURN_IF_ERROR(Copy(ctx, p.raw(), p.bytes(), out(ctx).raw()));
    }
    WEFT_RETURN_IF_ERROR(merger.Merge(ctx, grad(ctx), ScratchLike(p, &merged)));
    ScratchLike(p, &indices)->Resize(DType::kInt64, {merged.dim(0)});
    WEFT_RETURN_IF_ERROR(
        Upload(ctx, merged.rows().data(), indices.size(), indices.data<int64_t>()));
    return ForFloatType("input Param", p, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, merged.size(),
                     UpdateOfRow<T>{f, merged.row_size(), indices.data<int64_t>(),
                                    rate(ctx).data<T>(), merged.data<T>(), out(ctx).data<T>()});
    });
  });
}

// --- Others --------------------------------------------------------------------------------------

// What an update does with rows that have no gradient.
enum class OtherRows {
  kStay,
  kMove,  // as by a gradient of zeros
};

// Element i of rows, none of which occurs twice.
template <typename T>
struct TakeRows {
  int64_t width;
  const int64_t* rows;
  const T* from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    to[i] = from[rows[i / width] * width + i % width];
  }
};
template <typename T>
struct PutRows {
  int64_t width;
  const int64_t* rows;
  const T* from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    to[rows[i / width] * width + i % width] = from[i];
  }
};

class RowUpdate {
 public:
  RowUpdate(const KernelSpec& spec, Kernel dense, OtherRows others)
      : others_(others),
        param_(spec.Input("Param")),
        grad_(spec.Input("Grad")),
        dense_(std::move(dense)) {
    for (const SlotSchema& output : spec.schema->outputs()) {
      const int out = spec.Output(output.name);
      if (out < 0 || output.in_place_of.empty()) continue;
      pairs_.push_back({spec.Input(output.in_place_of), out});
    }
  }

  absl::Status Run(const KernelContext& ctx) {
    const Tensor &param = *ctx.inputs[param_], &grad = *ctx.inputs[grad_];
    if (param.is_rows()) {
      return absl::UnimplementedError("input Param: expected a tensor, found rows");
    }
    WEFT_RETURN_IF_ERROR(CheckIsRows("Grad", grad));
    WEFT_RETURN_IF_ERROR(CheckRowsOf("Grad", grad, param.dtype(), param.dims()));
    WEFT_RETURN_IF_ERROR(merger_.Merge(ctx, grad, ScratchLike(param, &merged_)));
    ScratchLike(param, &indices_)->Resize(DType::kInt64, {merged_.dim(0)});
    WEFT_RETURN_IF_ERROR(
        Upload(ctx, merged_.rows().data(), indices_.size(), indices_.data<int64_t>()));
    inputs_.assign(ctx.inputs.begin(), ctx.inputs.end());
    outputs_.assign(ctx.outputs.begin(), ctx.outputs.end());
    return others_ == OtherRows::kMove ? RunOnTable(ctx) : RunOnRows(ctx);
  }

 private:
  absl::Status RunOnTable(const KernelContext& ctx) {
    const Tensor& param = *ctx.inputs[param_];
    ScratchLike(param, &dense_grad_)->Resize(param.dtype(), param.dims());
    WEFT_RETURN_IF_ERROR(Clear(ctx, dense_grad_.raw(), dense_grad_.bytes()));
    WEFT_RETURN_IF_ERROR(Move<PutRows>(ctx, merged_, &dense_grad_));
    inputs_[grad_] = &dense_grad_;
    return RunDense(ctx);
  }

  // States have the shape of the parameter; other variables, such as powers of beta, are whole.
  absl::Status RunOnRows(const KernelContext& ctx) {
    const Tensor& param = *ctx.inputs[param_];
    parts_.resize(pairs_.size());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto [in, out] = pairs_[i];
      if (in < 0 || ctx.inputs[in]->dims() != param.dims()) continue;
      const Tensor& whole = *ctx.inputs[in];
      Tensor& to = *ctx.outputs[out];
      if (&to != &whole) {
        to.Resize(whole.dtype(), whole.dims());
        WEFT_RETURN_IF_ERROR(Copy(ctx, whole.raw(), whole.bytes(), to.raw()));
      }
      Dims dims = whole.dims();
      dims[0] = merged_.dim(0);
      ScratchLike(param, &parts_[i])->Resize(whole.dtype(), dims);
      WEFT_RETURN_IF_ERROR(Move<TakeRows>(ctx, to, &parts_[i]));
      inputs_[in] = outputs_[out] = &parts_[i];
    }
    ScratchLike(param, &dense_grad_)->Resize(merged_.dtype(), merged_.dims());
    WEFT_RETURN_IF_ERROR(Copy(ctx, merged_.raw(), merged_.bytes(), dense_grad_.raw()));
    inputs_[grad_] = &dense_grad_;
    WEFT_RETURN_IF_ERROR(RunDense(ctx));
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto [in, out] = pairs_[i];
      if (outputs_[out] != &parts_[i]) continue;
      WEFT_RETURN_IF_ERROR(Move<PutRows>(ctx, parts_[i], ctx.outputs[out]));
    }
    return absl::OkStatus();
  }

  absl::Status RunDense(const KernelContext& ctx) {
    KernelContext inner = ctx;
    inner.inputs = inputs_;
    inner.outputs = outputs_;
    return dense_.Run(inner);
  }

  // All elements of the rows of merged_.
  template <template <typename> class Step>
  absl::Status Move(const KernelContext& ctx, const Tensor& from, Tensor* to) {
    return ForFloatType("input Param", from, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(
          ctx, merged_.size(),
          Step<T>{merged_.row_size(), indices_.data<int64_t>(), from.data<T>(), to->data<T>()});
    });
  }

  struct Pair {
    int in, out;
  };

  OtherRows others_;
  int param_, grad_;
  std::vector<Pair> pairs_;  // variables that the update changes
  BoundKernel dense_;
  GpuRowMerger merger_;
  Tensor merged_, indices_, dense_grad_;
  std::deque<Tensor> parts_;  // by pair
  // Of the dense kernel.
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
};

absl::StatusOr<Kernel> UpdateByRows(const KernelFactory& dense, const KernelSpec& spec,
                                    OtherRows others) {
  if (spec.Input("MasterParam") >= 0) {
    return absl::UnimplementedError(
        "input MasterParam: no kernel for SelectedRows and a master weight");
  }
  const auto params = spec.inputs.find("Param");
  if (params == spec.inputs.end() || params->second.count != 1) {
    return absl::UnimplementedError("input Param: expected one variable for SelectedRows");
  }
  WEFT_ASSIGN_OR_RETURN(Kernel kernel, dense(spec));
  auto update = std::make_shared<RowUpdate>(spec, std::move(kernel), others);
  return Kernel([update](const KernelContext& ctx) { return update->Run(ctx); });
}

void AddForRows(KernelTable* table, const char* type, OtherRows others) {
  table->AddForRows(type, [dense = *table->Find(type), others](const KernelSpec& spec) {
    const bool is_lazy =
        spec.schema->FindAttr("lazy_mode") != nullptr && spec.attrs.Bool("lazy_mode");
    return UpdateByRows(dense, spec, is_lazy ? OtherRows::kStay : others);
  });
}

}  // namespace

void AddGpuRowUpdateKernels(KernelTable* table) {
  AddForRows(table, "adagrad", OtherRows::kStay);
  AddForRows(table, "adam", OtherRows::kMove);
  AddForRows(table, "adamw", OtherRows::kMove);
  AddForRows(table, "ftrl", OtherRows::kStay);
  AddForRows(table, "momentum", OtherRows::kMove);
  AddForRows(table, "rmsprop", OtherRows::kMove);
  table->AddForRows("sgd", SgdOfRows);
}

}  // namespace weft
