// SelectedRows, the gradients of sparse embeddings. Their elements are on the device, their indices
// on the host: where indices are made of ids, the host waits for the stream.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/bound_kernel.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/row_merger.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

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

// Out = the rows of X with their values changed by the kernel for dense tensors, possibly in place.
// With `merges`, each row index once.
absl::StatusOr<Kernel> MapValues(const KernelFactory& dense, const KernelSpec& spec, bool merges) {
  WEFT_ASSIGN_OR_RETURN(Kernel kernel, dense(spec));
  const int x_at = spec.Input("X"), out_at = spec.Output("Out");
  if (x_at < 0 || out_at != 0) return absl::InvalidArgumentError("input X, output Out: missing");
  struct Buffers {
    BoundKernel kernel;
    GpuRowMerger merger;
    Tensor merged, values, result;
  };
  auto buffers = std::make_shared<Buffers>();
  buffers->kernel = BoundKernel(std::move(kernel));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    Buffers& b = *buffers;
    const Tensor& x = *ctx.inputs[x_at];
    WEFT_RETURN_IF_ERROR(CheckIsRows("X", x));
    std::vector<const Tensor*> inputs(ctx.inputs.begin(), ctx.inputs.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_other = static_cast<int>(i) != x_at;
      if (is_other && inputs[i] != nullptr && (inputs[i]->is_rows() || inputs[i]->size() != 1)) {
        return absl::UnimplementedError("input Y: expected a dense tensor of one element");
      }
    }
    const Tensor* from = &x;
    if (merges) {
      WEFT_RETURN_IF_ERROR(b.merger.Merge(ctx, x, ScratchLike(x, &b.merged)));
      from = &b.merged;
    }
    ScratchLike(x, &b.values)->Resize(from->dtype(), from->dims());
    WEFT_RETURN_IF_ERROR(Copy(ctx, from->raw(), from->bytes(), b.values.raw()));
    ScratchLike(x, &b.result);
    inputs[x_at] = &b.values;
    std::vector<Tensor*> outputs = {&b.result};
    KernelContext inner = ctx;
    inner.inputs = inputs;
    inner.outputs = outputs;
    WEFT_RETURN_IF_ERROR(b.kernel.Run(inner));
    Tensor& out = *ctx.outputs[out_at];
    const std::vector<int64_t> rows(from->rows().begin(), from->rows().end());
    out.ResizeRows(x.dtype(), x.TallDims(), static_cast<int64_t>(rows.size()));
    absl::c_copy(rows, out.mutable_rows().begin());
    return Copy(ctx, b.result.raw(), b.result.bytes(), out.raw());
  });
}

// Rows without an index are zeros.
absl::StatusOr<Kernel> Scale(const KernelFactory& dense, const KernelSpec& spec) {
  if (spec.attrs.Float("bias") != 0) {
    return absl::UnimplementedError("attribute bias: expected 0 for SelectedRows");
  }
  return MapValues(dense, spec, /*merges=*/false);
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

}  // namespace

void AddGpuRowKernels(KernelTable* table) {
  // Of tensors, which are in the table.
  const auto dense = [&](const char* type) { return *table->Find(type); };
  table->AddForRows("clip_by_norm", [f = dense("clip_by_norm")](const KernelSpec& spec) {
    return MapValues(f, spec, /*merges=*/true);
  });
  table->AddForRows("elementwise_mul", [f = dense("elementwise_mul")](const KernelSpec& spec) {
    return MapValues(f, spec, /*merges=*/false);
  });
  table->AddForRows("get_tensor_from_selected_rows", RowValues);
  table->AddForRows("lookup_table_grad", LookupTableGrad);
  table->AddForRows("lookup_table_v2_grad", LookupTableGrad);
  table->AddForRows("merge_selected_rows", Merge);
  table->AddForRows("scale",
                    [f = dense("scale")](const KernelSpec& spec) { return Scale(f, spec); });
  table->AddForRows("sum", Sum);
}

}  // namespace weft
