// Slices that a tensor of indices selects: read (gather, index_select, gather_nd, lookup_table),
// written (scatter) or added to (index_add, scatter_nd_add).
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "base/status_macros.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/reduce_loops.h"
#include "ops/gpu/selection.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- Places --------------------------------------------------------------------------------------
// A selector calls run(shape, place) for a tensor of `dims` in a step, with a functor of the
// device.

// Of slices along an axis.
template <typename Index>
struct AxisPlace {
  const Index* indices;
  int64_t size;
  bool from_end;  // -1 to -size count from the end
  gpu::ElementCheck check;
  WEFT_DEVICE int64_t operator()(int64_t j) const {
    const int64_t index = indices[j];
    if (!check.IsInRange(index, from_end ? -size : 0, size, j)) return kWrongPlace;
    return index < 0 ? index + size : index;
  }
};

struct AxisSelector {
  In index;
  int64_t axis;
  bool from_end;

  template <typename Run>
  absl::Status operator()(const KernelContext& ctx, const Dims& dims, Run run) const {
    const size_t a = NormalizedAxis(axis, dims.size());
    const int64_t count = index(ctx).size(), inner = CountAfter(dims, a);
    const SliceShape shape{count, dims[a], CountBefore(dims, a) * inner, inner};
    return ForElementType<int64_t, int32_t>("input Index", index(ctx), [&](auto tag) {
      using Index = typename decltype(tag)::type;
      return run(shape, AxisPlace<Index>{index.data<Index>(ctx), dims[a], from_end,
                                         gpu::ElementCheck(ctx, "Index")});
    });
  }
};

// Each row of Index has indices along the first dimensions.
template <typename Index>
struct NdPlace {
  static constexpr int kMaxDepth = 8;
  const Index* indices;
  int depth;
  gpu::ElementCheck check;
  int64_t dims[kMaxDepth], strides[kMaxDepth];  // in slices
  WEFT_DEVICE int64_t operator()(int64_t j) const {
    int64_t place = 0;
    for (int d = 0; d < depth; ++d) {
      const int64_t index = indices[j * depth + d];
      if (!check.IsInRange(index, -dims[d], dims[d], j * depth + d)) return kWrongPlace;
      place += (index < 0 ? index + dims[d] : index) * strides[d];
    }
    return place;
  }
};

struct NdSelector {
  In index;

  template <typename Run>
  absl::Status operator()(const KernelContext& ctx, const Dims& dims, Run run) const {
    const Dims& index_dims = index(ctx).dims();
    const auto depth = static_cast<size_t>(index_dims.back());
    const auto all = absl::MakeConstSpan(dims);
    const int64_t count = CountBefore(index_dims, index_dims.size() - 1);
    const int64_t width = NumElements(all.subspan(depth));
    const SliceShape shape{count, NumElements(all.first(depth)), width,
                           std::max<int64_t>(width, 1)};
    return ForElementType<int64_t, int32_t>(
        "input Index", index(ctx), [&](auto tag) -> absl::Status {
          using Index = typename decltype(tag)::type;
          NdPlace<Index> place{index.data<Index>(ctx),
                               static_cast<int>(depth),
                               gpu::ElementCheck(ctx, "Index"),
                               {},
                               {}};
          if (depth > place.kMaxDepth) {
            return absl::UnimplementedError(
                absl::StrCat("input Index: no kernel for shape ", DimsToString(index_dims)));
          }
          int64_t stride = 1;
          for (size_t d = depth; d-- > 0; stride *= dims[d]) {
            place.dims[d] = dims[d];
            place.strides[d] = stride;
          }
          return run(shape, place);
        });
  }
};

// --- Gather --------------------------------------------------------------------------------------

template <typename Select>
absl::StatusOr<Kernel> Gather(OpKernel& op, Select select) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return select(ctx, x(ctx).dims(), [&](const SliceShape& shape, const auto& place) {
      return GatherSlices(ctx, shape, place, x.elements<T>(ctx), out.elements<T>(ctx));
    });
  });
}

// The gradient of input `slot`. Elements selected several times get the sum, in the order of their
// positions.
template <typename Select>
absl::StatusOr<Kernel> GatherGrad(OpKernel& op, const std::string& slot, Select select) {
  op.Ignore({slot});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out(slot + "@GRAD");
  return op.Make(
      Floats(dout),
      [=, scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_RETURN_IF_ERROR(Clear(ctx, dx(ctx).raw(), dx(ctx).bytes()));
        return select(ctx, dx(ctx).dims(), [&](const SliceShape& shape, const auto& place) {
          return ScatterSlices(ctx, shape, place, Write::kAdd, dout.data<T>(ctx), dx.data<T>(ctx),
                               ScratchLike(dout(ctx), scratch.get()));
        });
      });
}

template <typename MakeSelect>
void AddGather(KernelTable* table, const char* type, MakeSelect make_select) {
  table->Add(
      type, [=](OpKernel op) { return Gather(op, make_select(op)); },
      [=](OpKernel op) { return GatherGrad(op, "X", make_select(op)); });
}

// --- Scatter -------------------------------------------------------------------------------------

struct ScatterSlots {
  const char *x, *values, *out;
};

template <typename Types, typename Select>
absl::StatusOr<Kernel> Scatter(OpKernel& op, ScatterSlots slots, Types (*types)(In), Select select,
                               Write write) {
  const In x = op.in(slots.x), values = op.in(slots.values);
  const Out out = op.out(slots.out);
  return op.Make(types(x),
                 [=, scratch = std::make_shared<Tensor>()](const KernelContext& ctx,
                                                           auto zero) -> absl::Status {
                   using T = decltype(zero);
                   WEFT_RETURN_IF_ERROR(Copy(ctx, x(ctx).raw(), x(ctx).bytes(), out(ctx).raw()));
                   return select(
                       ctx, x(ctx).dims(), [&](const SliceShape& shape, const auto& place) {
                         return ScatterSlices(ctx, shape, place, write, values.data<T>(ctx),
                                              out.data<T>(ctx), ScratchLike(x(ctx), scratch.get()));
                       });
                 });
}

// Every value gets the gradient of its slice, also one that another value replaced.
template <typename Select>
absl::StatusOr<Kernel> ScatterGrad(OpKernel& op, ScatterSlots slots, Select select, Write write) {
  op.Ignore({slots.x, slots.values, slots.out});
  const In dout = op.in(absl::StrCat(slots.out, "@GRAD"));
  const Out dx = op.out(absl::StrCat(slots.x, "@GRAD"));
  const Out dvalues = op.out(absl::StrCat(slots.values, "@GRAD"));
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return select(
        ctx, dout(ctx).dims(), [&](const SliceShape& shape, const auto& place) -> absl::Status {
          using Place = std::decay_t<decltype(place)>;
          const T* const from = dout.data<T>(ctx);
          if (T* to = dx.data_or_null<T>(ctx)) {
            WEFT_RETURN_IF_ERROR(Copy(ctx, from, dout(ctx).bytes(), to));
            if (write != Write::kAdd) {
              WEFT_RETURN_IF_ERROR(
                  ForEach(ctx, shape.count * shape.width, ClearSlice<T, Place>{shape, place, to}));
            }
          }
          T* const to = dvalues.data_or_null<T>(ctx);
          if (to == nullptr) return absl::OkStatus();
          return GatherSlices(ctx, shape, place, from, to);
        });
  });
}

// `write_of`(attrs).
template <typename Types, typename MakeSelect, typename WriteOf>
void AddScatter(KernelTable* table, const char* type, ScatterSlots slots, Types (*types)(In),
                MakeSelect make_select, WriteOf write_of) {
  table->Add(
      type,
      [=](OpKernel op) { return Scatter(op, slots, types, make_select(op), write_of(op.attrs())); },
      [=](OpKernel op) { return ScatterGrad(op, slots, make_select(op), write_of(op.attrs())); });
}

// --- Embeddings ----------------------------------------------------------------------------------

// The row of W for an id. W is a whole table, or a part of one.
template <typename Id>
struct RowOfId {
  const Id* ids;
  int64_t rows, limit, start, padding;
  gpu::ElementCheck check;
  WEFT_DEVICE int64_t operator()(int64_t j) const {
    const int64_t id = ids[j], row = id - start;
    if (!check.IsInRange(id, 0, limit, j)) return kWrongPlace;
    return id != padding && row >= 0 && row < rows ? row : kNoPlace;
  }
};

struct IdSelector {
  In ids;
  int64_t padding = -1;  // the id without a row; -1 for none
  int64_t start = 0;     // the id of the first row
  int64_t limit = -1;    // ids of the whole table, if W is a part

  template <typename Run>
  absl::Status operator()(const KernelContext& ctx, const Dims& dims, Run run) const {
    const SliceShape shape{ids(ctx).size(), dims[0], dims[1], std::max<int64_t>(dims[1], 1)};
    return ForElementType<int64_t, int32_t>("input Ids", ids(ctx), [&](auto tag) {
      using Id = typename decltype(tag)::type;
      return run(shape, RowOfId<Id>{ids.data<Id>(ctx), dims[0], limit < 0 ? dims[0] : limit, start,
                                    padding, gpu::ElementCheck(ctx, "Ids")});
    });
  }
};

absl::StatusOr<IdSelector> WholeTable(OpKernel& op) {
  if (op.attrs().Bool("zeros_out_of_range")) {
    return absl::UnimplementedError("attribute zeros_out_of_range: the GPU has no kernel for true");
  }
  IdSelector select;
  select.ids = op.in("Ids");
  select.padding = op.attrs().Int("padding_idx");
  return select;
}

absl::StatusOr<IdSelector> PartOfTable(OpKernel& op) {
  IdSelector select;
  select.ids = op.in("Ids");
  select.start = op.attrs().Int("start_index");
  select.limit = op.attrs().Int("vocab_size");
  if (select.limit <= 0) select.limit = std::numeric_limits<int64_t>::max();
  if (select.start >= 0) return select;
  return absl::InvalidArgumentError(
      absl::StrCat("attribute start_index: expected 0 or more, found ", select.start));
}

// Out[i...] = the row of W for Ids[i...]; zeros if there is none.
template <typename Types>
absl::StatusOr<Kernel> Lookup(OpKernel& op, Types types, const IdSelector& select) {
  const In table = op.in("W");
  const Out out = op.out("Out");
  return op.Make(types(table), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return select(ctx, table(ctx).dims(), [&](const SliceShape& shape, const auto& place) {
      return GatherSlices(ctx, shape, place, table.elements<T>(ctx), out.elements<T>(ctx));
    });
  });
}

absl::StatusOr<Kernel> LookupTable(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const IdSelector select, WholeTable(op));
  return Lookup(
      op, [](In in) { return RawElements{in}; }, select);
}

absl::StatusOr<Kernel> LookupTableGrad(OpKernel op) {
  if (op.attrs().Bool("is_sparse")) {
    return absl::UnimplementedError("attribute is_sparse: no kernel for SelectedRows");
  }
  WEFT_ASSIGN_OR_RETURN(const IdSelector select, WholeTable(op));
  return GatherGrad(op, "W", select);
}

absl::StatusOr<Kernel> Embedding(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const IdSelector select, PartOfTable(op));
  return Lookup(op, Floats, select);
}

absl::StatusOr<Kernel> EmbeddingGrad(OpKernel op) {
  WEFT_ASSIGN_OR_RETURN(const IdSelector select, PartOfTable(op));
  return GatherGrad(op, "W", select);
}

}  // namespace

void AddGpuGatherScatterKernels(KernelTable* table) {
  const auto along = [](const char* axis) {
    return [=](OpKernel& op) { return AxisSelector{op.in("Index"), op.attrs().Int(axis), true}; };
  };
  const auto nd = [](OpKernel& op) { return NdSelector{op.in("Index")}; };
  const auto adds = [](const OpAttrs&) { return Write::kAdd; };
  AddGather(table, "gather", along("axis"));
  AddGather(table, "index_select", along("dim"));
  AddGather(table, "gather_nd", nd);
  AddScatter(
      table, "index_add", {"X", "AddValue", "Out"}, Floats,
      [](OpKernel& op) {
        return AxisSelector{op.in("Index"), op.attrs().Int("axis"), false};
      },
      adds);
  AddScatter(table, "scatter_nd_add", {"X", "Updates", "Out"}, FloatsAndInts, nd, adds);
  AddScatter(
      table, "scatter", {"X", "Updates", "Out"}, FloatsAndInts,
      [](OpKernel& op) {
        return AxisSelector{op.in("Ids"), 0, false};
      },
      [](const OpAttrs& attrs) {
        return attrs.Bool("overwrite") ? Write::kReplaceByLast : Write::kReplaceBySum;
      });
  for (const char* type : {"lookup_table", "lookup_table_v2"}) {
    table->Add(type, LookupTable, LookupTableGrad);
  }
  table->Add("c_embedding", Embedding, EmbeddingGrad);
}

}  // namespace weft
