// SelectedRows, the gradients of sparse embeddings. Their elements are on the device, their indices
// on the host: where indices are made of ids, the host waits for the stream.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/formulas/update.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/kernel_util.h"
#include "ops/merge_rows.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// Element i of the sums of groups of rows, each in the order of its rows.
template <typename T>
struct SumOfGroup {
  int64_t width;
  const int64_t *begins, *positions;
  const T* from;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t group = i / width, k = i % width;
    T sum = from[positions[begins[group]] * width + k];
    for (int64_t at = begins[group] + 1; at < begins[group + 1]; ++at) {
      sum += from[positions[at] * width + k];
    }
    to[i] = sum;
  }
};

// RowMerger for the device.
class GpuRowMerger {
 public:
  // Out = the rows with each index once, in ascending order: rows of the same index are added.
  absl::Status Merge(const KernelContext& ctx, const Tensor& rows, Tensor* out) {
    const RowGroups groups = GroupRows(rows.rows());
    std::vector<int64_t> numbers = groups.begins;
    numbers.insert(numbers.end(), groups.positions.begin(), groups.positions.end());
    ScratchLike(rows, &numbers_)->Resize(DType::kInt64, {static_cast<int64_t>(numbers.size())});
    WEFT_RETURN_IF_ERROR(
        Upload(ctx, numbers.data(), numbers.size() * sizeof(int64_t), numbers_.raw()));
    out->ResizeRows(rows.dtype(), rows.TallDims(), static_cast<int64_t>(groups.rows.size()));
    std::copy(groups.rows.begin(), groups.rows.end(), out->mutable_rows().begin());
    const int64_t* const begins = numbers_.data<int64_t>();
    return ForFloatType("input X", rows, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, out->size(),
                     SumOfGroup<T>{rows.row_size(), begins, begins + groups.begins.size(),
                                   rows.data<T>(), out->data<T>()});
    });
  }

 private:
  Tensor numbers_;  // begins and positions of groups
};

absl::Status NotInPlace() {
  return absl::UnimplementedError("output Out: no kernel that works in place of an input");
}

// Out = X with each row index once.
absl::StatusOr<Kernel> Merge(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows(
      [=, merger = GpuRowMerger()](const KernelContext& ctx) mutable -> absl::Status {
        WEFT_RETURN_IF_ERROR(CheckIsRows("X", x(ctx)));
        return &out(ctx) == &x(ctx) ? NotInPlace() : merger.Merge(ctx, x(ctx), &out(ctx));
      });
}

// Out = the rows of X, in their order, as a dense tensor.
absl::StatusOr<Kernel> RowValues(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x(ctx)));
    if (&out(ctx) == &x(ctx)) return NotInPlace();
    out(ctx).Resize(x(ctx).dtype(), x(ctx).dims());
    return Copy(ctx, x(ctx).raw(), x(ctx).bytes(), out(ctx).raw());
  });
}

// Out = the rows of all inputs, in their order, with repeated indices.
absl::StatusOr<Kernel> Sum(OpKernel op) {
  const In xs = op.in("X");
  const Out out = op.out("Out");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    std::vector<const Tensor*> terms;
    int64_t count = 0;
    for (int i = 0; i < xs.count(); ++i) {
      const Tensor* x = xs.get(ctx, i);
      if (x == nullptr || (!x->is_rows() && x->size() == 0)) continue;
      if (!x->is_rows()) {
        return absl::UnimplementedError("input X: no kernel that adds SelectedRows and a tensor");
      }
      if (x == &out(ctx)) return NotInPlace();
      terms.push_back(x);
      WEFT_RETURN_IF_ERROR(CheckRowsOf("X", *x, terms[0]->dtype(), terms[0]->TallDims()));
      count += x->dim(0);
    }
    if (terms.empty()) return absl::InvalidArgumentError("input X: missing");
    out(ctx).ResizeRows(terms[0]->dtype(), terms[0]->TallDims(), count);
    auto* values = static_cast<char*>(out(ctx).raw());
    auto row = out(ctx).mutable_rows().begin();
    for (const Tensor* x : terms) {
      WEFT_RETURN_IF_ERROR(Copy(ctx, x->raw(), x->bytes(), values));
      values += x->bytes();
      row = std::copy(x->rows().begin(), x->rows().end(), row);
    }
    return absl::OkStatus();
  });
}

// W@GRAD has one row per id, in their order: that of Out@GRAD. As on the CPU, an id that is
// padding_idx has one too.
absl::StatusOr<Kernel> LookupTableGrad(OpKernel op) {
  if (!op.attrs().Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is dense, but W@GRAD is SelectedRows");
  }
  if (op.attrs().Bool("zeros_out_of_range")) {
    return absl::UnimplementedError("attribute zeros_out_of_range: the GPU has no kernel for true");
  }
  const In table = op.in("W"), ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    for (const Tensor* input : {&table(ctx), &ids(ctx), &dout(ctx)}) {
      if (input->is_rows() || input == dtable.get(ctx)) {
        return absl::UnimplementedError("output W@GRAD: the only SelectedRows, and no input");
      }
    }
    const Dims dims = table(ctx).dims();
    if (dims.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input W: expected a table of two dimensions, found shape ", DimsToString(dims)));
    }
    const int64_t count = ids(ctx).size();
    WEFT_RETURN_IF_ERROR(CheckDType("Out@GRAD", dout(ctx), table(ctx).dtype()));
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), count * dims[1]));
    dtable(ctx).ResizeRows(dout(ctx).dtype(), dims, count);
    WEFT_RETURN_IF_ERROR(Copy(ctx, dout(ctx).raw(), dout(ctx).bytes(), dtable(ctx).raw()));
    WEFT_RETURN_IF_ERROR(Synchronize(ctx));
    WEFT_ASSIGN_OR_RETURN(const Tensor on_host, ids(ctx).ToHost());
    const absl::Span<int64_t> rows = dtable(ctx).mutable_rows();
    return ForElementType<int64_t, int32_t>("input Ids", on_host, [&](auto tag) -> absl::Status {
      const auto* values = on_host.data<typename decltype(tag)::type>();
      for (int64_t i = 0; i < count; ++i) {
        rows[i] = values[i];
        if (rows[i] >= 0 && rows[i] < dims[0]) continue;
        return absl::InvalidArgumentError(absl::StrCat("input Ids: ", rows[i], " at position ", i,
                                                       " is not in [0, ", dims[0],
                                                       "), the rows of W"));
      }
      return absl::OkStatus();
    });
  });
}

// --- sgd -----------------------------------------------------------------------------------------

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
        Upload(ctx, merged.rows().data(), merged.rows().size() * sizeof(int64_t), indices.raw()));
    return ForFloatType("input Param", p, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return ForEach(ctx, merged.size(),
                     UpdateOfRow<T>{f, merged.row_size(), indices.data<int64_t>(),
                                    rate(ctx).data<T>(), merged.data<T>(), out(ctx).data<T>()});
    });
  });
}

}  // namespace

void AddGpuRowKernels(KernelTable* table) {
  table->AddForRows("get_tensor_from_selected_rows", RowValues);
  table->AddForRows("lookup_table_grad", LookupTableGrad);
  table->AddForRows("lookup_table_v2_grad", LookupTableGrad);
  table->AddForRows("merge_selected_rows", Merge);
  table->AddForRows("sgd", SgdOfRows);
  table->AddForRows("sum", Sum);
}

}  // namespace weft
