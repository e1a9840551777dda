// Embeddings: gathers rows of a table by id.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// padding_idx of a table without a row for padding.
constexpr int64_t kNoPadding = -1;

// Calls visit(position, id) for every id, each of which must be the index of a row.
template <typename Visit>
absl::Status ForEachId(const Tensor& ids, int64_t rows, Visit visit) {
  return ForElementType<int64_t, int32_t>("input Ids", ids, [&](auto tag) -> absl::Status {
    const auto* values = ids.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (values[i] < 0 || values[i] >= rows) {
        return absl::InvalidArgumentError(absl::StrCat("input Ids: ", values[i], " at position ", i,
                                                       " is not in [0, ", rows,
                                                       "), the rows of W"));
      }
      visit(i, values[i]);
    }
    return absl::OkStatus();
  });
}

// Out[i...] = W[Ids[i...]]; zeros for the id padding_idx.
absl::StatusOr<Kernel> LookupTable(const KernelSpec& spec) {
  OpKernel op(spec);
  const In table = op.in("W"), ids = op.in("Ids");
  const Out out = op.out("Out");
  const int64_t padding = spec.attrs.Int("padding_idx");
  return op.Make(RawElements{table}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t width = table(ctx).dim(1);
    const T* from = table.elements<T>(ctx);
    T* to = out.elements<T>(ctx);
    return ForEachId(ids(ctx), table(ctx).dim(0), [&](int64_t i, int64_t id) {
      if (padding != kNoPadding && id == padding) {
        std::fill_n(to + i * width, width, T(0));
      } else {
        std::copy_n(from + id * width, width, to + i * width);
      }
    });
  });
}

// W@GRAD, with the shape of W: row r is the sum of Out@GRAD over the positions of id r, in their
// order; zeros for padding_idx.
absl::StatusOr<Kernel> LookupTableGrad(const KernelSpec& spec) {
  if (spec.attrs.Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is SelectedRows, but W@GRAD is a dense tensor");
  }
  OpKernel op(spec);
  op.Ignore({"W"});
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  const int64_t padding = spec.attrs.Int("padding_idx");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = dtable(ctx).dim(0), width = dtable(ctx).dim(1);
    const T* from = dout.data<T>(ctx);
    T* to = dtable.data<T>(ctx);
    std::fill_n(to, dtable(ctx).size(), T(0));
    return ForEachId(ids(ctx), rows, [&](int64_t i, int64_t id) {
      if (padding != kNoPadding && id == padding) return;
      for (int64_t k = 0; k < width; ++k) to[id * width + k] += from[i * width + k];
    });
  });
}

// W@GRAD has one row per id, in their order: that of Out@GRAD. As in Paddle, and unlike in the
// dense gradient, an id that is padding_idx has one too: it moves a row that no lookup returns.
absl::StatusOr<Kernel> LookupTableGradRows(const KernelSpec& spec) {
  if (!spec.attrs.Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is dense, but W@GRAD is SelectedRows");
  }
  OpKernel op(spec);
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
    std::memcpy(dtable(ctx).raw(), dout(ctx).raw(), dout(ctx).bytes());
    const absl::Span<int64_t> rows = dtable(ctx).mutable_rows();
    return ForEachId(ids(ctx), dims[0], [&](int64_t i, int64_t id) { rows[i] = id; });
  });
}

// The row of the whole table at which this part begins.
absl::StatusOr<int64_t> StartOfPart(const OpAttrs& attrs) {
  const int64_t start = attrs.Int("start_index");
  if (start >= 0) return start;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute start_index: expected 0 or more, found ", start));
}

// Calls visit(position, row) for every id of a row in this part of the table. Other ids are rows of
// other parts; InvalidArgument if they are in none.
template <typename Visit>
absl::Status ForEachIdOfPart(const Tensor& ids, int64_t start, int64_t rows, int64_t vocab_size,
                             Visit visit) {
  return ForElementType<int64_t, int32_t>("input Ids", ids, [&](auto tag) -> absl::Status {
    const auto* values = ids.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int64_t id = values[i];
      if (id < 0 || (vocab_size > 0 && id >= vocab_size)) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Ids: ", id, " at position ", i, " is no row of the whole table"));
      }
      if (id >= start && id - start < rows) visit(i, id - start);
    }
    return absl::OkStatus();
  });
}

// Out[i...] = W[Ids[i...] - start_index]; zeros if W has no such row.
absl::StatusOr<Kernel> Embedding(const KernelSpec& spec) {
  OpKernel op(spec);
  const In table = op.in("W"), ids = op.in("Ids");
  const Out out = op.out("Out");
  WEFT_ASSIGN_OR_RETURN(const int64_t start, StartOfPart(spec.attrs));
  const int64_t vocab_size = spec.attrs.Int("vocab_size");
  return op.Make(Floats(table), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = table(ctx).dim(0), width = table(ctx).dim(1);
    const T* from = table.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::fill_n(to, out(ctx).size(), T(0));
    return ForEachIdOfPart(ids(ctx), start, rows, vocab_size, [&](int64_t i, int64_t row) {
      std::copy_n(from + row * width, width, to + i * width);
    });
  });
}

// W@GRAD: row r is the sum of Out@GRAD over the positions of id start_index + r, in their order.
absl::StatusOr<Kernel> EmbeddingGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"W"});
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  WEFT_ASSIGN_OR_RETURN(const int64_t start, StartOfPart(spec.attrs));
  const int64_t vocab_size = spec.attrs.Int("vocab_size");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = dtable(ctx).dim(0), width = dtable(ctx).dim(1);
    const T* from = dout.data<T>(ctx);
    T* to = dtable.data<T>(ctx);
    std::fill_n(to, dtable(ctx).size(), T(0));
    return ForEachIdOfPart(ids(ctx), start, rows, vocab_size, [&](int64_t i, int64_t row) {
      for (int64_t k = 0; k < width; ++k) to[row * width + k] += from[i * width + k];
    });
  });
}

}  // namespace

void AddLookupTableKernels(KernelTable* table) {
  for (const std::string type : {"lookup_table", "lookup_table_v2"}) {
    table->Add(type, LookupTable);
    table->Add(type + "_grad", LookupTableGrad);
    table->AddForRows(type + "_grad", LookupTableGradRows);
  }
  table->Add("c_embedding", Embedding);
  table->Add("c_embedding_grad", EmbeddingGrad);
}

}  // namespace weft
