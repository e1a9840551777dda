// Sums and multiples of SelectedRows: gradients of a table with several lookups, and clipping.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/cpu/rows.h"
#include "ops/kernel_util.h"
#include "ops/merge_rows.h"

namespace weft {
namespace {

// Common properties of the terms, from the first one.
struct SumType {
  DType dtype;
  Dims tall_dims;
  bool is_dense = false;  // one of the terms is

  static absl::StatusOr<SumType> Of(absl::Span<const Tensor* const> terms) {
    const Tensor& first = *terms[0];
    SumType type = {first.dtype(), first.is_rows() ? first.TallDims() : first.dims()};
    for (const Tensor* x : terms) {
      if (x->is_rows()) {
        WEFT_RETURN_IF_ERROR(CheckRowsOf("X", *x, type.dtype, type.tall_dims));
        continue;
      }
      type.is_dense = true;
      WEFT_RETURN_IF_ERROR(CheckDType("X", *x, type.dtype));
      WEFT_RETURN_IF_ERROR(CheckDims("X", *x, type.tall_dims));
    }
    return type;
  }
};

// Concatenated.
void Concatenate(const SumType& type, absl::Span<const Tensor* const> terms, Tensor* out) {
  int64_t count = 0;
  for (const Tensor* x : terms) count += x->dim(0);
  out->ResizeRows(type.dtype, type.tall_dims, count);
  auto* values = static_cast<char*>(out->raw());
  auto row = out->mutable_rows().begin();
  for (const Tensor* x : terms) {
    std::memcpy(values, x->raw(), x->bytes());
    values += x->bytes();
    row = std::copy(x->rows().begin(), x->rows().end(), row);
  }
}

template <typename T>
void AddUp(const SumType& type, absl::Span<const Tensor* const> terms, Tensor* out) {
  out->Resize(type.dtype, type.tall_dims);
  T* to = out->data<T>();
  std::fill_n(to, out->size(), T(0));
  for (const Tensor* x : terms) {
    const T* from = x->data<T>();
    if (!x->is_rows()) {
      for (int64_t i = 0; i < x->size(); ++i) to[i] += from[i];
      continue;
    }
    const int64_t width = x->row_size();
    for (int64_t row : x->rows()) {
      for (int64_t k = 0; k < width; ++k) to[row * width + k] += *from++;
    }
  }
}

// The rows of all inputs, in their order, with repeated indices; dense if one of the inputs is.
// Empty dense inputs do not count.
absl::StatusOr<Kernel> Sum(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const KernelSpec::Slot x_slot, RequiredInputs(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel(
      [=, terms = std::vector<const Tensor*>()](const KernelContext& ctx) mutable -> absl::Status {
        Tensor* out = ctx.out(out_index);
        Tensor old_out;  // if Out is also one of the terms
        terms.clear();
        for (const Tensor* x : ctx.inputs.subspan(x_slot.first, x_slot.count)) {
          if (x == nullptr || (!x->is_rows() && x->size() == 0)) continue;
          if (x == out && !old_out.allocated()) old_out = x->Clone();
          terms.push_back(x == out ? &old_out : x);
        }
        if (terms.empty()) return absl::InvalidArgumentError("input X: missing");
        WEFT_ASSIGN_OR_RETURN(const SumType type, SumType::Of(terms));
        if (!type.is_dense) {
          Concatenate(type, terms, out);
          return absl::OkStatus();
        }
        return ForFloatType("input X", *terms[0], [&](auto tag) {
          AddUp<typename decltype(tag)::type>(type, terms, out);
          return absl::OkStatus();
        });
      });
}

// Out = X with each row index once, in ascending order: rows of the same index are added.
absl::StatusOr<Kernel> Merge(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=, merger = RowMerger()](const KernelContext& ctx) mutable -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    return out == &x ? merger.Merge(x.Clone(), out) : merger.Merge(x, out);
  });
}

// Out = the rows of X, in their order, as a dense tensor.
absl::StatusOr<Kernel> RowValues(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    if (out == &x) {
      return absl::UnimplementedError("output Out: no kernel that works in place of an input");
    }
    out->Resize(x.dtype(), x.dims());
    std::memcpy(out->raw(), x.raw(), x.bytes());
    return absl::OkStatus();
  });
}

// to = factor x, possibly in place.
template <typename T>
void Multiply(const Tensor& x, double factor, Tensor* to) {
  to->ResizeRows(x.dtype(), x.TallDims(), x.dim(0));
  if (to != &x) std::copy(x.rows().begin(), x.rows().end(), to->mutable_rows().begin());
  const T* from = x.data<T>();
  std::transform(from, from + x.size(), to->data<T>(),
                 [f = static_cast<T>(factor)](T value) { return f * value; });
}

// Out = X Y, possibly in place of X, for Y of one element.
absl::StatusOr<Kernel> MultiplyByNumber(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int y_index, RequiredInput(spec, "Y"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor &x = *ctx.in(x_index), &y = *ctx.in(y_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    WEFT_RETURN_IF_ERROR(CheckDType("Y", y, x.dtype()));
    if (y.is_rows() || out == &y) {
      return absl::UnimplementedError("input Y: expected a dense tensor, and not the output");
    }
    WEFT_ASSIGN_OR_RETURN(const double factor, ScalarValue("Y", y));
    return ForFloatType("input X", x, [&](auto tag) {
      Multiply<typename decltype(tag)::type>(x, factor, out);
      return absl::OkStatus();
    });
  });
}

// Out = X with each row index once, scaled down to the norm max_norm if its norm is larger.
absl::StatusOr<Kernel> ClipByNorm(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const double max_norm = spec.attrs.Float("max_norm");
  if (!(max_norm > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute max_norm: expected more than 0, found ", max_norm));
  }
  return Kernel([=, merger = RowMerger(),
                 merged = Tensor()](const KernelContext& ctx) mutable -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    WEFT_RETURN_IF_ERROR(merger.Merge(x, &merged));
    return ForFloatType("input X", merged, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const double norm = std::sqrt(SumOfSquares(merged.data<T>(), merged.size()));
      Multiply<T>(merged, norm <= max_norm ? 1 : max_norm / norm, ctx.out(out_index));
      return absl::OkStatus();
    });
  });
}

// Out = scale X, possibly in place. Rows without an index are zero, so there is no bias.
absl::StatusOr<Kernel> Scale(const KernelSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const double scale = spec.attrs.Float("scale");
  if (spec.attrs.Float("bias") != 0) {
    return absl::UnimplementedError("attribute bias: expected 0 for SelectedRows");
  }
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& x = *ctx.in(x_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    return ForFloatType("input X", x, [&](auto tag) {
      Multiply<typename decltype(tag)::type>(x, scale, out);
      return absl::OkStatus();
    });
  });
}

}  // namespace

void AddSparseSumKernels(KernelTable* table) {
  table->AddForRows("clip_by_norm", ClipByNorm);
  table->AddForRows("elementwise_mul", MultiplyByNumber);
  table->AddForRows("get_tensor_from_selected_rows", RowValues);
  table->AddForRows("merge_selected_rows", Merge);
  table->AddForRows("scale", Scale);
  table->AddForRows("sum", Sum);
}

}  // namespace weft
