// Reductions.
#include <cstdint>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/op_kernel.h"

namespace weft {
namespace {

// Which dimensions go, as attributes say: all of them where reduce_all is set or dim names none.
struct Reduction {
  std::vector<int64_t> dim;
  bool keep_dim;
  bool reduce_all;

  explicit Reduction(const OpAttrs& attrs)
      : dim(attrs.Ints("dim")),
        keep_dim(attrs.Bool("keep_dim")),
        reduce_all(attrs.Bool("reduce_all") || dim.empty()) {}

  // The dims of the input with those that go set to 1.
  absl::StatusOr<Dims> KeptDims(const Dims& x) const {
    if (reduce_all) return Dims(x.size(), 1);
    Dims kept = x;
    const int64_t rank = x.size();
    for (int64_t d : dim) {
      // Paddle lets a scalar have dimensions 0 and -1.
      if (rank == 0 && (d == 0 || d == -1)) continue;
      if (d < -rank || d >= rank) {
        return absl::InvalidArgumentError(absl::StrCat(
            "attribute dim: ", d, " is not a dimension of shape ", DimsToString(x), " of input X"));
      }
      kept[d < 0 ? d + rank : d] = 1;
    }
    return kept;
  }

  // The dims of the result.
  Dims OutDims(const Dims& x) const {
    const int64_t rank = x.size();
    Dims out;
    for (int64_t i = 0; i < rank; ++i) {
      bool goes = reduce_all;
      for (int64_t d : dim) goes |= d == i || d + rank == i;
      if (!goes) {
        out.push_back(x[i]);
      } else if (keep_dim) {
        out.push_back(1);
      }
    }
    return out;
  }
};

// Unimplemented where the op also converts: no program is known to do it.
absl::Status NoConversion(const OpAttrs& attrs) {
  for (absl::string_view name : {"in_dtype", "out_dtype"}) {
    if (attrs.Int(name) != -1) {
      return absl::UnimplementedError(
          absl::StrCat("attribute ", name, ": no kernel that converts (", attrs.Int(name), ")"));
    }
  }
  return absl::OkStatus();
}

// Out = mean of X over the dimensions.
absl::StatusOr<Kernel> ReduceMean(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoConversion(spec.attrs));
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const Reduction reduction(spec.attrs);
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const Dims kept, reduction.KeptDims(x.dims()));
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      // Of an empty tensor the mean is 0 / 0, not a number.
      const double count = x.size() == 0 ? 0 : static_cast<double>(x.size() / NumElements(kept));
      out->Resize(x.dtype(), reduction.OutDims(x.dims()));
      SumBroadcast(x.data<T>(), x.dims(), kept, count, out->data<T>());
      return absl::OkStatus();
    });
  });
}

// X@GRAD = Out@GRAD / (elements that went into one mean), repeated.
absl::StatusOr<Kernel> ReduceMeanGrad(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoConversion(spec.attrs));
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dx_index = spec.Output("X@GRAD");
  const Reduction reduction(spec.attrs);
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dx = ctx.out(dx_index);
    if (dx == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const Dims kept, reduction.KeptDims(x.dims()));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout, NumElements(kept)));
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Dims dims = x.dims();
      dx->Resize(dout.dtype(), dims);
      if (dx->size() == 0) return absl::OkStatus();
      const T count = static_cast<T>(dx->size() / NumElements(kept));
      const T* from = dout.data<T>();
      T* to = dx->data<T>();
      Walk(MakeLoopNest(dims, dims, kept), [&](int64_t i, int64_t j) { to[i] = from[j] / count; });
      return absl::OkStatus();
    });
  });
}

// Out, of shape [1], = sum of the squares of X.
absl::StatusOr<Kernel> SquaredL2Norm(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) {
    const Tensor& x = *ctx.in(x_index);
    return ForFloatType("input X", x, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T norm = static_cast<T>(SumOfSquares(x.data<T>(), x.size()));
      ctx.out(out_index)->Resize(x.dtype(), {1});
      *ctx.out(out_index)->data<T>() = norm;
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddReduceKernels(KernelTable* table) {
  table->Add("reduce_mean", Framed(ReduceMean));
  table->Add("reduce_mean_grad", Framed(ReduceMeanGrad));
  table->Add("squared_l2_norm", Framed(SquaredL2Norm));
}

}  // namespace weft
