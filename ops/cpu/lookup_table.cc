// Embeddings: gathers rows of a table by id.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"
#include "ops/threads.h"

namespace weft {
namespace {

constexpr int64_t kNoRow = -1;

// The row of W for an id. W is a whole table, or a part of one.
struct RowsById {
  // Calls visit(position, row or kNoRow) for every id. InvalidArgument if an id is no row of the
  // whole table, unless such ids give zeros.
  template <typename Visit>
  absl::Status ForEach(const Tensor& ids, int64_t rows, Visit visit) const {
    return ForEach(ids, rows, 0, ids.size(), visit);
  }

  // The same for those from position `begin` to `end`.
  template <typename Visit>
  absl::Status ForEach(const Tensor& ids, int64_t rows, int64_t begin, int64_t end,
                       Visit visit) const {
    const int64_t limit = is_part ? vocab_size : rows;
    return ForElementType<int64_t, int32_t>("input Ids", ids, [&](auto tag) -> absl::Status {
      const auto* values = ids.data<typename decltype(tag)::type>();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t id = values[i], row = id - start;
        if (id < 0 || id >= limit) {
          if (zeros_out_of_range) {
            visit(i, kNoRow);
            continue;
          }
          return absl::InvalidArgumentError(
              absl::StrCat("input Ids: ", id, " at position ", i,
                           is_part ? " is no row of the whole table"
                                   : absl::StrCat(" is not in [0, ", rows, "), the rows of W")));
        }
        visit(i, id != padding && row >= 0 && row < rows ? row : kNoRow);
      }
      return absl::OkStatus();
    });
  }

  int64_t padding = -1;  // the id without a row; -1 for none
  bool zeros_out_of_range = false;
  bool is_part = false;
  int64_t start = 0;       // the id of the first row
  int64_t vocab_size = 0;  // rows of the whole table, if W is a part
};

RowsById ReadWholeTable(const OpAttrs& attrs) {
  RowsById rows;
  rows.padding = attrs.Int("padding_idx");
  rows.zeros_out_of_range = attrs.Bool("zeros_out_of_range");
  return rows;
}

RowsById ReadPartOfTable(const OpAttrs& attrs) {
  RowsById rows;
  rows.is_part = true;
  rows.start = attrs.Int("start_index");
  rows.vocab_size = attrs.Int("vocab_size");
  if (rows.vocab_size <= 0) rows.vocab_size = std::numeric_limits<int64_t>::max();
  return rows;
}

// Out[i...] = the row of W for Ids[i...]; zeros if there is none.
template <typename TypesOf>
absl::StatusOr<Kernel> Lookup(OpKernel& op, TypesOf types, const RowsById& by_id) {
  const In table = op.in("W"), ids = op.in("Ids");
  const Out out = op.out("Out");
  return op.Make(types(table), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t width = table(ctx).dim(1);
    const T* from = table.elements<T>(ctx);
    T* to = out.elements<T>(ctx);
    const auto copy = [=](int64_t i, int64_t row) {
      if (row == kNoRow) {
        std::fill_n(to + i * width, width, T(0));
      } else {
        std::copy_n(from + row * width, width, to + i * width);
      }
    };
    const Tensor& all = ids(ctx);
    const int64_t rows = table(ctx).dim(0);
    if (all.size() * width < kMinParallelSize || KernelThreads() == 1) {
      return by_id.ForEach(all, rows, copy);
    }
    // The first id that is no row is the one to name.
    absl::Status status = by_id.ForEach(all, rows, [](int64_t, int64_t) {});
    if (!status.ok()) return status;
    ForEachPart(all.size(), 1, [&](int64_t begin, int64_t end) {
      by_id.ForEach(all, rows, begin, end, copy).IgnoreError();  // there is none
    });
    return status;
  });
}

// W@GRAD, with the shape of W: each row is the sum of Out@GRAD over its positions, in their order.
absl::StatusOr<Kernel> LookupGrad(OpKernel& op, const RowsById& by_id) {
  op.Ignore({"W"});
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const int64_t rows = dtable(ctx).dim(0), width = dtable(ctx).dim(1);
    const T* from = dout.data<T>(ctx);
    T* to = dtable.data<T>(ctx);
    std::fill_n(to, dtable(ctx).size(), T(0));
    return by_id.ForEach(ids(ctx), rows, [=](int64_t i, int64_t row) {
      if (row == kNoRow) return;
      for (int64_t k = 0; k < width; ++k) to[row * width + k] += from[i * width + k];
    });
  });
}

absl::StatusOr<Kernel> LookupTable(OpKernel op) {
  return Lookup(
      op, [](In in) { return RawElements{in}; }, ReadWholeTable(op.attrs()));
}

absl::StatusOr<Kernel> LookupTableGrad(OpKernel op) {
  if (op.attrs().Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is SelectedRows, but W@GRAD is a dense tensor");
  }
  return LookupGrad(op, ReadWholeTable(op.attrs()));
}

// Makes `grad` the gradient of a table with these dimensions: of each id that is a row of it, in
// their order, the row of `dout`.
absl::Status WriteGradRows(const RowsById& by_id, const Tensor& ids, const Tensor& dout,
                           const Dims& table, Tensor* grad) {
  int64_t count = ids.size();
  if (by_id.zeros_out_of_range) {
    count = 0;
    WEFT_RETURN_IF_ERROR(by_id.ForEach(
        ids, table[0], [&](int64_t, int64_t row) { count += row != kNoRow ? 1 : 0; }));
  }
  grad->ResizeRows(dout.dtype(), table, count);
  const bool has_all = count == ids.size();
  if (has_all) std::memcpy(grad->raw(), dout.raw(), dout.bytes());
  const size_t row_bytes = static_cast<size_t>(table[1]) * SizeOf(dout.dtype());
  const char* const from = static_cast<const char*>(dout.raw());
  char* to = static_cast<char*>(grad->raw());
  int64_t* next = grad->mutable_rows().data();
  return by_id.ForEach(ids, table[0], [&](int64_t i, int64_t row) {
    if (row == kNoRow) return;
    *next++ = row;
    if (has_all) return;
    std::memcpy(to, from + i * row_bytes, row_bytes);
    to += row_bytes;
  });
}

// W@GRAD has one row per id, in their order: that of Out@GRAD. As in Paddle, and unlike in the
// dense gradient, an id that is padding_idx has one too: it moves a row that no lookup returns.
absl::StatusOr<Kernel> LookupTableGradRows(OpKernel op) {
  if (!op.attrs().Bool("is_sparse")) {
    return absl::UnimplementedError(
        "attribute is_sparse: the gradient is dense, but W@GRAD is SelectedRows");
  }
  const In table = op.in("W"), ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  RowsById by_id;
  by_id.zeros_out_of_range = op.attrs().Bool("zeros_out_of_range");
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
    return WriteGradRows(by_id, ids(ctx), dout(ctx), dims, &dtable(ctx));
  });
}

// The same for a table that parameter servers hold: attribute shape has its dimensions.
absl::StatusOr<Kernel> ServedLookupGradRows(OpKernel op) {
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dtable = op.out("W@GRAD");
  const std::vector<int64_t> shape = op.attrs().Ints("shape");
  RowsById by_id;
  by_id.zeros_out_of_range = op.attrs().Bool("zeros_out_of_range");
  return op.MakeForRows([=](const KernelContext& ctx) -> absl::Status {
    const int64_t count = ids(ctx).size();
    WEFT_RETURN_IF_ERROR(CheckSize("Out@GRAD", dout(ctx), count * shape[1]));
    return WriteGradRows(by_id, ids(ctx), dout(ctx), Dims(shape.begin(), shape.end()),
                         &dtable(ctx));
  });
}

absl::StatusOr<Kernel> Embedding(OpKernel op) {
  return Lookup(op, Floats, ReadPartOfTable(op.attrs()));
}

absl::StatusOr<Kernel> EmbeddingGrad(OpKernel op) {
  return LookupGrad(op, ReadPartOfTable(op.attrs()));
}

}  // namespace

void AddLookupTableKernels(KernelTable* table) {
  for (const char* type : {"lookup_table", "lookup_table_v2"}) {
    table->Add(type, LookupTable, LookupTableGrad);
    table->AddForRows(absl::StrCat(type, "_grad"), LookupTableGradRows);
  }
  table->Add("c_embedding", Embedding, EmbeddingGrad);
  table->AddForRows("ps_lookup_grad", ServedLookupGradRows);
}

}  // namespace weft
