// Sums of tensors of one shape: gradients of a parameter with several uses, weight decay. Sums and
// multiples of SelectedRows: gradients of a table with several lookups, and clipping.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/merge_rows.h"
#include "ops/op_kernel.h"
#include "ops/vectorize.h"

namespace weft {
namespace {

// Out = X[0] + X[1] + ..., in this order for every element; in blocks, so that Out may be any X.
template <typename T>
void AddUp(absl::Span<const Tensor* const> terms, Tensor* out) {
  constexpr int64_t kBlock = 1024;
  T block[kBlock];
  T* const to = out->data<T>();
  // The first two terms are read before Out is written.
  bool is_later_term = false;
  for (size_t term = 2; term < terms.size(); ++term) is_later_term |= terms[term]->data<T>() == to;
  for (int64_t begin = 0; begin < out->size(); begin += kBlock) {
    const int64_t n = std::min(kBlock, out->size() - begin);
    T* const sums = is_later_term ? block : to + begin;
    const T* sum = terms[0]->data<T>() + begin;
    for (size_t term = 1; term < terms.size(); ++term) {
      const T* x = terms[term]->data<T>() + begin;
      ForEach<T>(n,
                 [=](int64_t i) { sums[i] = static_cast<T>(Wrapping(sum[i]) + Wrapping(x[i])); });
      sum = sums;
    }
    if (sum != to + begin) std::copy_n(sum, n, to + begin);
  }
}

// Inputs that are empty, or no variable, do not count.
absl::StatusOr<Kernel> Sum(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.InPlace()
      .Pointwise()
      .AllowEmptyArguments(x)
      .Supports(FloatsAndInts(x))
      .Make([=](const KernelContext& ctx) -> absl::Status {
        const Tensor* like = nullptr;  // the first that counts; an empty one if there is none
        absl::InlinedVector<const Tensor*, 64> terms;
        for (int i = 0; i < x.count(); ++i) {
          const Tensor* term = x.get(ctx, i);
          if (term == nullptr) continue;
          if (like == nullptr || (terms.empty() && term->size() > 0)) like = term;
          if (term->size() == 0) continue;
          WEFT_RETURN_IF_ERROR(CheckDType("X", *term, like->dtype()));
          WEFT_RETURN_IF_ERROR(CheckDims("X", *term, like->dims()));
          terms.push_back(term);
        }
        if (like == nullptr) return absl::InvalidArgumentError("input X: missing");
        return ForNumberType("input X", *like, [&](auto tag) {
          out(ctx).Resize(like->dtype(), like->dims());
          AddUp<typename decltype(tag)::type>(terms, &out(ctx));
          return absl::OkStatus();
        });
      });
}

// --- SelectedRows --------------------------------------------------------------------------------

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
absl::StatusOr<Kernel> SumOfRows(OpKernel op) {
  const In xs = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows(
      [=, terms = std::vector<const Tensor*>()](const KernelContext& ctx) mutable -> absl::Status {
        Tensor old_out;  // if Out is also one of the terms
        terms.clear();
        for (int i = 0; i < xs.count(); ++i) {
          const Tensor* x = xs.get(ctx, i);
          if (x == nullptr || (!x->is_rows() && x->size() == 0)) continue;
          if (x == &out(ctx) && !old_out.allocated()) old_out = x->Clone();
          terms.push_back(x == &out(ctx) ? &old_out : x);
        }
        if (terms.empty()) return absl::InvalidArgumentError("input X: missing");
        WEFT_ASSIGN_OR_RETURN(const SumType type, SumType::Of(terms));
        if (!type.is_dense) {
          Concatenate(type, terms, &out(ctx));
          return absl::OkStatus();
        }
        return ForFloatType("input X", *terms[0], [&](auto tag) {
          AddUp<typename decltype(tag)::type>(type, terms, &out(ctx));
          return absl::OkStatus();
        });
      });
}

// Out = step(X, &Out), which may be one tensor. X is rows.
template <typename Step>
absl::StatusOr<Kernel> OfRows(OpKernel op, Step step) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) mutable -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x(ctx)));
    return step(x(ctx), &out(ctx));
  });
}

// Out = X with each row index once, in ascending order: rows of the same index are added.
absl::StatusOr<Kernel> Merge(const KernelSpec& spec) {
  return OfRows(spec, [merger = RowMerger()](const Tensor& x, Tensor* out) mutable {
    return out == &x ? merger.Merge(x.Clone(), out) : merger.Merge(x, out);
  });
}

// Out = the rows of X, in their order, as a dense tensor.
absl::StatusOr<Kernel> RowValues(const KernelSpec& spec) {
  return OfRows(spec, [](const Tensor& x, Tensor* out) {
    if (out == &x) {
      return absl::UnimplementedError("output Out: no kernel that works in place of an input");
    }
    out->Resize(x.dtype(), x.dims());
    std::memcpy(out->raw(), x.raw(), x.bytes());
    return absl::OkStatus();
  });
}

// to = factor x, possibly in place.
absl::Status Multiply(const Tensor& x, double factor, Tensor* to) {
  return ForFloatType("input X", x, [&](auto tag) {
    using T = typename decltype(tag)::type;
    to->ResizeRows(x.dtype(), x.TallDims(), x.dim(0));
    if (to != &x) std::copy(x.rows().begin(), x.rows().end(), to->mutable_rows().begin());
    const T* from = x.data<T>();
    std::transform(from, from + x.size(), to->data<T>(),
                   [f = static_cast<T>(factor)](T value) { return f * value; });
    return absl::OkStatus();
  });
}

// Out = X Y, possibly in place of X, for Y of one element.
absl::StatusOr<Kernel> MultiplyByNumber(OpKernel op) {
  const In x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x(ctx)));
    WEFT_RETURN_IF_ERROR(CheckDType("Y", y(ctx), x(ctx).dtype()));
    if (y(ctx).is_rows() || &out(ctx) == &y(ctx)) {
      return absl::UnimplementedError("input Y: expected a dense tensor, and not the output");
    }
    WEFT_ASSIGN_OR_RETURN(const double factor, ScalarValue("Y", y(ctx)));
    return Multiply(x(ctx), factor, &out(ctx));
  });
}

// Out = X with each row index once, scaled down to the norm max_norm if its norm is larger.
absl::StatusOr<Kernel> ClipByNorm(const KernelSpec& spec) {
  const double max_norm = spec.attrs.Float("max_norm");
  return OfRows(spec,
                [=, merger = RowMerger(), merged = Tensor()](const Tensor& x,
                                                             Tensor* out) mutable -> absl::Status {
                  WEFT_RETURN_IF_ERROR(merger.Merge(x, &merged));
                  double norm = 0;
                  WEFT_RETURN_IF_ERROR(ForFloatType("input X", merged, [&](auto tag) {
                    norm = std::sqrt(
                        SumOfSquares(merged.data<typename decltype(tag)::type>(), merged.size()));
                    return absl::OkStatus();
                  }));
                  return Multiply(merged, norm <= max_norm ? 1 : max_norm / norm, out);
                });
}

// Out = scale X, possibly in place. Rows without an index are zero, so there is no bias.
absl::StatusOr<Kernel> Scale(const KernelSpec& spec) {
  if (spec.attrs.Float("bias") != 0) {
    return absl::UnimplementedError("attribute bias: expected 0 for SelectedRows");
  }
  return OfRows(spec, [scale = spec.attrs.Float("scale")](const Tensor& x, Tensor* out) {
    return Multiply(x, scale, out);
  });
}

}  // namespace

void AddSumKernels(KernelTable* table) {
  table->Add("sum", Sum);
  table->AddForRows("clip_by_norm", ClipByNorm);
  table->AddForRows("elementwise_mul", MultiplyByNumber);
  table->AddForRows("get_tensor_from_selected_rows", RowValues);
  table->AddForRows("merge_selected_rows", Merge);
  table->AddForRows("scale", Scale);
  table->AddForRows("sum", SumOfRows);
}

}  // namespace weft
