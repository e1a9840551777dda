// Embeddings: rows of a table, looked up by number.
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

absl::Status CheckTable(const Tensor& table) {
  if (table.rank() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "input W: expected a table of two dimensions, found shape ", DimsToString(table.dims())));
}

// Calls visit(position, id) for every id, each of which must be the number of a row.
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

// Ids of lookup_table have a last dimension of 1, in place of which are the columns of W.
enum class IdDims { kAll, kWithoutLast };

Dims LookedUpDims(const Tensor& ids, const Tensor& table, IdDims id_dims) {
  Dims dims = ids.dims();
  if (id_dims == IdDims::kWithoutLast && !dims.empty()) dims.pop_back();
  dims.push_back(table.dim(1));
  return dims;
}

// Out[i...] = W[Ids[i...]]; zeros for the id padding_idx.
absl::StatusOr<Kernel> LookupTable(const KernelSpec& spec, IdDims id_dims) {
  WEFT_ASSIGN_OR_RETURN(const int table_index, RequiredInput(spec, "W"));
  WEFT_ASSIGN_OR_RETURN(const int ids_index, RequiredInput(spec, "Ids"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const int64_t padding = spec.attrs.Int("padding_idx");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& table = *ctx.in(table_index);
    const Tensor& ids = *ctx.in(ids_index);
    Tensor* out = ctx.out(out_index);
    WEFT_RETURN_IF_ERROR(CheckTable(table));
    if (out == &table || out == &ids) {
      return absl::UnimplementedError("output Out: no kernel that works in place of an input");
    }
    out->Resize(table.dtype(), LookedUpDims(ids, table, id_dims));
    const size_t width = table.dim(1) * SizeOf(table.dtype());
    const auto* from = static_cast<const char*>(table.raw());
    auto* to = static_cast<char*>(out->raw());
    return ForEachId(ids, table.dim(0), [&](int64_t i, int64_t id) {
      if (padding != kNoPadding && id == padding) {
        std::memset(to + i * width, 0, width);
      } else {
        std::memcpy(to + i * width, from + id * width, width);
      }
    });
  });
}

// W@GRAD, of the shape of W: row r is the sum of Out@GRAD over the positions of id r, in their
// order; zeros where that is padding_idx.
absl::StatusOr<Kernel> LookupTableGrad(const KernelSpec& spec, IdDims id_dims) {
  if (spec.attrs.Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is SelectedRows, but W@GRAD is a dense tensor");
  }
  WEFT_ASSIGN_OR_RETURN(const int table_index, RequiredInput(spec, "W"));
  WEFT_ASSIGN_OR_RETURN(const int ids_index, RequiredInput(spec, "Ids"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  const int dtable_index = spec.Output("W@GRAD");
  const int64_t padding = spec.attrs.Int("padding_idx");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& table = *ctx.in(table_index);
    const Tensor& ids = *ctx.in(ids_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dtable = ctx.out(dtable_index);
    if (dtable == nullptr) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(CheckTable(table));
    WEFT_RETURN_IF_ERROR(CheckDType("Out@GRAD", dout, table.dtype()));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout, LookedUpDims(ids, table, id_dims)));
    if (dtable == &ids || dtable == &dout) {
      return absl::UnimplementedError("output W@GRAD: no kernel that works in place of an input");
    }
    return ForFloatType("input Out@GRAD", dout, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t rows = table.dim(0), width = table.dim(1);
      dtable->Resize(dout.dtype(), Dims{rows, width});
      T* to = dtable->data<T>();
      std::fill_n(to, dtable->size(), T(0));
      return ForEachId(ids, rows, [&](int64_t i, int64_t id) {
        if (padding != kNoPadding && id == padding) return;
        const T* from = dout.data<T>() + i * width;
        for (int64_t k = 0; k < width; ++k) to[id * width + k] += from[k];
      });
    });
  });
}

// W@GRAD has a row for every id, in their order: that of Out@GRAD. As in Paddle, and unlike in the
// dense gradient, an id that is padding_idx has one too: it moves a row that no lookup returns.
absl::StatusOr<Kernel> LookupTableGradRows(const KernelSpec& spec, IdDims id_dims) {
  if (!spec.attrs.Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is dense, but W@GRAD is SelectedRows");
  }
  WEFT_ASSIGN_OR_RETURN(const int table_index, RequiredInput(spec, "W"));
  WEFT_ASSIGN_OR_RETURN(const int ids_index, RequiredInput(spec, "Ids"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  WEFT_ASSIGN_OR_RETURN(const int dtable_index, RequiredOutput(spec, "W@GRAD"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensor& table = *ctx.in(table_index);
    const Tensor& ids = *ctx.in(ids_index);
    const Tensor& dout = *ctx.in(dout_index);
    Tensor* dtable = ctx.out(dtable_index);
    for (const Tensor* input : {&table, &ids, &dout}) {
      if (input->is_rows() || input == dtable) {
        return absl::UnimplementedError("output W@GRAD: the only SelectedRows, and no input");
      }
    }
    WEFT_RETURN_IF_ERROR(CheckTable(table));
    WEFT_RETURN_IF_ERROR(CheckDType("Out@GRAD", dout, table.dtype()));
    WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout, LookedUpDims(ids, table, id_dims)));
    dtable->ResizeRows(dout.dtype(), table.dims(), ids.size());
    std::memcpy(dtable->raw(), dout.raw(), dout.bytes());
    const absl::Span<int64_t> rows = dtable->mutable_rows();
    return ForEachId(ids, table.dim(0), [&](int64_t i, int64_t id) { rows[i] = id; });
  });
}

// Calls visit(position, row) for every id that names a row of this part of the table. Others are
// rows of other parts; InvalidArgument where they are in none.
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

// Out[i...] = W[Ids[i...] - start_index]; zeros where that is no row of W.
absl::StatusOr<Kernel> Embedding(const KernelSpec& spec) {
  OpKernel op(spec);
  const In table = op.in("W"), ids = op.in("Ids");
  const Out out = op.out("Out");
  const int64_t start = spec.attrs.Int("start_index"), vocab_size = spec.attrs.Int("vocab_size");
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
  const int64_t start = spec.attrs.Int("start_index"), vocab_size = spec.attrs.Int("vocab_size");
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

void AddLookup(KernelTable* table, const std::string& type, IdDims id_dims) {
  table->Add(type, Framed([=](const KernelSpec& spec) { return LookupTable(spec, id_dims); }));
  table->Add(type + "_grad",
             Framed([=](const KernelSpec& spec) { return LookupTableGrad(spec, id_dims); }));
  table->AddForRows(type + "_grad",
                    [=](const KernelSpec& spec) { return LookupTableGradRows(spec, id_dims); });
}

}  // namespace

void AddLookupTableKernels(KernelTable* table) {
  AddLookup(table, "lookup_table", IdDims::kWithoutLast);
  AddLookup(table, "lookup_table_v2", IdDims::kAll);
  table->Add("c_embedding", Embedding);
  table->Add("c_embedding_grad", EmbeddingGrad);
}

}  // namespace weft
