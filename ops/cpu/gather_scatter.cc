// Slices and elements that a tensor of indices selects: read (gather, index_select), written
// (scatter) or added to (index_add).
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/axis_elements.h"
#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"
#include "ops/threads.h"

namespace weft {
namespace {

// --- Selections ----------------------------------------------------------------------------------
// ForEach(visit) of a selection calls visit(place, at, n) for its slices in order: n elements, from
// `place` on in the tensor, from `at` on in the tensor of all slices. ForEachOnThreads does so in
// any order, on the threads that kernels may use.

// Slices at indices along an axis.
struct AxisSlices {
  template <typename Visit>
  void ForEach(Visit visit) const {
    ForEachFrom(0, count(), visit);
  }
  template <typename Visit>
  void ForEachOnThreads(Visit visit) const {
    ForEachPartIfLong(count() * inner(), count(), 1,
                      [&](int64_t begin, int64_t end) { ForEachFrom(begin, end, visit); });
  }

  int64_t count() const { return CountBefore(dims, axis) * static_cast<int64_t>(indices.size()); }
  int64_t inner() const { return CountAfter(dims, axis); }
  template <typename Visit>
  void ForEachFrom(int64_t begin, int64_t end, Visit visit) const {
    const auto num_indices = static_cast<int64_t>(indices.size());
    const int64_t n = inner();
    for (int64_t slice = begin; slice < end;) {
      const int64_t outer = slice / num_indices, first = slice % num_indices;
      const int64_t last = std::min(num_indices, first + end - slice);
      for (int64_t i = first; i < last; ++i, ++slice) {
        visit((outer * dims[axis] + indices[i]) * n, slice * n, n);
      }
    }
  }

  Dims dims;
  size_t axis;
  std::vector<int64_t> indices;
};

// Slices of one size.
struct Slices {
  template <typename Visit>
  void ForEach(Visit visit) const {
    ForEachFrom(0, static_cast<int64_t>(places.size()), visit);
  }
  template <typename Visit>
  void ForEachOnThreads(Visit visit) const {
    const auto count = static_cast<int64_t>(places.size());
    ForEachPartIfLong(count * size, count, 1,
                      [&](int64_t begin, int64_t end) { ForEachFrom(begin, end, visit); });
  }

  template <typename Visit>
  void ForEachFrom(int64_t begin, int64_t end, Visit visit) const {
    for (int64_t slice = begin; slice < end; ++slice) visit(places[slice], slice * size, size);
  }

  std::vector<int64_t> places;
  int64_t size;
};

// A selector reads a selection from a tensor of `dims` in a step:
//   absl::StatusOr<...> select(const KernelContext& ctx, const Dims& dims)

auto SelectAxisSlices(OpKernel& op, const char* slot, int64_t axis,
                      decltype(&ReadIndices) read_indices) {
  return [=, index = op.in(slot)](const KernelContext& ctx,
                                  const Dims& dims) -> absl::StatusOr<AxisSlices> {
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(auto indices, read_indices(slot, index(ctx), dims[a]));
    return AxisSlices{dims, a, std::move(indices)};
  };
}

// Each row of Index has indices along the first dimensions.
auto SelectNd(OpKernel& op) {
  return [in = op.in("Index")](const KernelContext& ctx,
                               const Dims& dims) -> absl::StatusOr<Slices> {
    const Tensor& index = in(ctx);
    const int64_t depth = index.dims().back();
    const Dims strides = RowMajorStrides(dims);
    std::vector<int64_t> places(
        depth == 0 ? CountBefore(index.dims(), index.rank() - 1) : index.size() / depth, 0);
    WEFT_RETURN_IF_ERROR(
        (ForElementType<int64_t, int32_t>("input Index", index, [&](auto tag) -> absl::Status {
          const auto* values = index.data<typename decltype(tag)::type>();
          for (int64_t i = 0; i < index.size(); ++i) {
            const int64_t size = dims[i % depth];
            const int64_t number = values[i] < 0 ? values[i] + size : values[i];
            if (number < 0 || number >= size) {
              return absl::InvalidArgumentError(absl::StrCat(
                  "input Index: ", values[i], " at position ", i, " is not in [0, ", size, ")"));
            }
            places[i / depth] += number * strides[i % depth];
          }
          return absl::OkStatus();
        })));
    return Slices{std::move(places), NumElements(absl::MakeConstSpan(dims).subspan(depth))};
  };
}

// --- Gather: gather, gather_nd, index_sample, index_select, take_along_axis ----------------------

template <typename Select>
absl::StatusOr<Kernel> Gather(OpKernel& op, const char* x_slot, const char* out_slot,
                              Select select) {
  const In x = op.in(x_slot);
  const Out out = op.out(out_slot);
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto selection, select(ctx, x(ctx).dims()));
    const T* from = x.elements<T>(ctx);
    T* to = out.elements<T>(ctx);
    selection.ForEachOnThreads(
        [=](int64_t place, int64_t at, int64_t n) { std::copy_n(from + place, n, to + at); });
    return absl::OkStatus();
  });
}

// Elements selected several times get the sum.
template <typename Select>
absl::StatusOr<Kernel> GatherGrad(OpKernel& op, const char* x_slot, const char* out_slot,
                                  Select select) {
  op.Ignore({x_slot});
  const In dout = op.in(absl::StrCat(out_slot, "@GRAD"));
  const Out dx = op.out(absl::StrCat(x_slot, "@GRAD"));
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto selection, select(ctx, dx(ctx).dims()));
    const T* from = dout.data<T>(ctx);
    T* to = dx.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    selection.ForEach([=](int64_t place, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[place + i] += from[at + i];
    });
    return absl::OkStatus();
  });
}

// `make_select`(op) returns the selector.
template <typename MakeSelect>
void AddGather(KernelTable* table, const char* type, MakeSelect make_select,
               const char* x_slot = "X", const char* out_slot = "Out") {
  table->Add(
      type, [=](OpKernel op) { return Gather(op, x_slot, out_slot, make_select(op)); },
      [=](OpKernel op) { return GatherGrad(op, x_slot, out_slot, make_select(op)); });
}

// --- Scatter: index_add, scatter, scatter_nd_add -------------------------------------------------

// What becomes of a selected slice. If values select it several times:
enum class Write {
  kAdd,            // all are added to it
  kReplaceByLast,  // the last one replaces it
  kReplaceBySum,   // their sum replaces it
  kReplace,        // the last one replaces it, but all get the gradient
};

struct ScatterSlots {
  const char *x, *values, *out;
};

template <typename Types, typename Select>
absl::StatusOr<Kernel> Scatter(OpKernel& op, ScatterSlots slots, Types (*types)(In), Select select,
                               Write write) {
  const In x = op.in(slots.x), values = op.in(slots.values);
  const Out out = op.out(slots.out);
  return op.Make(types(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto selection, select(ctx, x(ctx).dims()));
    const T* from = values.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), to);
    const auto clear = [=](int64_t place, int64_t, int64_t n) { std::fill_n(to + place, n, T(0)); };
    const auto add = [=](int64_t place, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        to[place + i] = static_cast<T>(Wrapping(to[place + i]) + Wrapping(from[at + i]));
      }
    };
    if (write == Write::kReplaceByLast) {
      selection.ForEach(
          [=](int64_t place, int64_t at, int64_t n) { std::copy_n(from + at, n, to + place); });
    } else if (write == Write::kReplace) {
      selection.ForEach([=](int64_t place, int64_t at, int64_t n) {
        clear(place, at, n);
        add(place, at, n);
      });
    } else {
      if (write == Write::kReplaceBySum) selection.ForEach(clear);
      selection.ForEach(add);
    }
    return absl::OkStatus();
  });
}

// From the gradient of the output to those of X and the values; null skips one.
template <typename T, typename Selection>
void WriteGradients(const Selection& selection, Write write, const Tensor& dout, T* dx,
                    T* dvalues) {
  const T* from = dout.data<T>();
  if (dx != nullptr) {
    std::copy_n(from, dout.size(), dx);
    if (write != Write::kAdd) {
      selection.ForEach(
          [=](int64_t place, int64_t, int64_t n) { std::fill_n(dx + place, n, T(0)); });
    }
  }
  if (dvalues == nullptr) return;
  std::vector<int64_t> last(write == Write::kReplaceByLast ? dout.size() : 0);  // by place
  if (!last.empty()) {
    selection.ForEach([&](int64_t place, int64_t at, int64_t) { last[place] = at; });
  }
  selection.ForEach([&](int64_t place, int64_t at, int64_t n) {
    if (last.empty() || last[place] == at) {
      std::copy_n(from + place, n, dvalues + at);
    } else {
      std::fill_n(dvalues + at, n, T(0));
    }
  });
}

template <typename Select>
absl::StatusOr<Kernel> ScatterGrad(OpKernel& op, ScatterSlots slots, Select select, Write write) {
  op.Ignore({slots.x, slots.values, slots.out});
  const In dout = op.in(absl::StrCat(slots.out, "@GRAD"));
  const Out dx = op.out(absl::StrCat(slots.x, "@GRAD"));
  const Out dvalues = op.out(absl::StrCat(slots.values, "@GRAD"));
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto selection, select(ctx, dout(ctx).dims()));
    WriteGradients(selection, write, dout(ctx), dx.data_or_null<T>(ctx),
                   dvalues.data_or_null<T>(ctx));
    return absl::OkStatus();
  });
}

// `make_write`(op) returns absl::StatusOr<Write>.
template <typename Types, typename MakeSelect, typename MakeWrite>
void AddScatter(KernelTable* table, const char* type, ScatterSlots slots, Types (*types)(In),
                MakeSelect make_select, MakeWrite make_write) {
  table->Add(
      type,
      [=](OpKernel op) -> absl::StatusOr<Kernel> {
        WEFT_ASSIGN_OR_RETURN(const Write write, make_write(op.attrs()));
        return Scatter(op, slots, types, make_select(op), write);
      },
      [=](OpKernel op) -> absl::StatusOr<Kernel> {
        WEFT_ASSIGN_OR_RETURN(const Write write, make_write(op.attrs()));
        // Paddle 1's CPU kernel gives X a gradient where Updates replace it.
        const bool is_paddle1s = op.spec().paddle_cpu_quirks && op.attrs().Has("overwrite") &&
                                 !op.attrs().Does("clears replaced rows");
        return ScatterGrad(op, slots, make_select(op), is_paddle1s ? Write::kAdd : write);
      });
}

// --- index_put -----------------------------------------------------------------------------------

// The slices that index_put writes: tensor d of `indices`, all broadcast with each other, has their
// indices along dimension d of a tensor of these dims. `shape`: of the broadcast indices.
absl::StatusOr<Slices> ReadSlices(const In& indices, const KernelContext& ctx, const Dims& dims,
                                  Dims* shape) {
  for (int d = 0; d < indices.count(); ++d) {
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(*shape, indices(ctx, d).dims(), /*axis=*/-1));
    *shape = shapes.out;
  }
  Slices slices{std::vector<int64_t>(NumElements(*shape), 0),
                NumElements(absl::MakeConstSpan(dims).subspan(indices.count()))};
  const Dims strides = RowMajorStrides(dims);
  for (int d = 0; d < indices.count(); ++d) {
    WEFT_ASSIGN_OR_RETURN(const auto numbers,
                          ReadIndicesFromEnd("indices", indices(ctx, d), dims[d]));
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(*shape, indices(ctx, d).dims(), /*axis=*/-1));
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y),
         [&](int64_t i, int64_t j) { slices.places[i] += numbers[j] * strides[d]; });
  }
  return slices;
}

// The dims of all slices together, from the shape of the indices, and those of `value` aligned to
// them, which must not exceed them.
absl::StatusOr<Broadcast> AlignValue(Dims all, const Dims& dims, int num_indices,
                                     const Dims& value) {
  all.insert(all.end(), dims.begin() + num_indices, dims.end());
  WEFT_ASSIGN_OR_RETURN(Broadcast shapes, AlignShapes(all, value, /*axis=*/-1));
  if (shapes.out == all) return shapes;
  return absl::InvalidArgumentError(
      absl::StrCat("input value: expected dimensions that broadcast to ", DimsToString(all),
                   ", found ", DimsToString(value)));
}

// out = x, with the slices that `indices` select replaced by value, or with value added. If several
// select the same slice, the last one replaces it, or all are added.
absl::StatusOr<Kernel> IndexPut(OpKernel op) {
  const In x = op.in("x"), indices = op.in("indices"), value = op.in("value");
  const Out out = op.out("out");
  const bool adds = op.attrs().Bool("accumulate");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    Dims shape;
    WEFT_ASSIGN_OR_RETURN(const Slices slices, ReadSlices(indices, ctx, dims, &shape));
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignValue(shape, dims, indices.count(), value(ctx).dims()));
    const T* values = value.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), to);
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      T& element = to[slices.places[i / slices.size] + i % slices.size];
      element = adds ? static_cast<T>(Wrapping(element) + Wrapping(values[j])) : values[j];
    });
    return absl::OkStatus();
  });
}

// The gradient of value is summed over the dimensions along which it was broadcast.
absl::StatusOr<Kernel> IndexPutGrad(OpKernel op) {
  op.Ignore({"x", "value"});
  const In indices = op.in("indices"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dvalue = op.out("value@GRAD");
  const Write write = op.attrs().Bool("accumulate") ? Write::kAdd : Write::kReplaceByLast;
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    Dims shape;
    WEFT_ASSIGN_OR_RETURN(const Slices slices, ReadSlices(indices, ctx, dims, &shape));
    Tensor* const gradient = dvalue.get(ctx);
    std::vector<T> full(gradient == nullptr ? 0 : slices.places.size() * slices.size);
    WriteGradients(slices, write, dout(ctx), dx.data_or_null<T>(ctx),
                   gradient == nullptr ? nullptr : full.data());
    if (gradient == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignValue(shape, dims, indices.count(), gradient->dims()));
    SumBroadcast(full.data(), shapes.out, shapes.y, 1, gradient->data<T>());
    return absl::OkStatus();
  });
}

}  // namespace

void AddGatherScatterKernels(KernelTable* table) {
  const auto axis_slices = [](const char* axis_attr) {
    return [=](OpKernel& op) {
      return SelectAxisSlices(op, "Index", op.attrs().Int(axis_attr), ReadIndicesFromEnd);
    };
  };
  AddGather(table, "gather", axis_slices("axis"));
  AddGather(table, "index_select", axis_slices("dim"));
  AddGather(table, "gather_nd", SelectNd);
  AddGather(table, "index_sample", [](OpKernel& op) { return SelectAxisElements(op, 1); });
  const auto axis_elements = [](OpKernel& op) {
    return SelectAxisElements(op, op.attrs().Int("Axis"));
  };
  AddGather(table, "take_along_axis", axis_elements, "Input", "Result");
  const auto adds = [](const OpAttrs&) -> absl::StatusOr<Write> { return Write::kAdd; };
  AddScatter(
      table, "index_add", {"X", "AddValue", "Out"}, Floats,
      [](OpKernel& op) {
        return SelectAxisSlices(op, "Index", op.attrs().Int("axis"), ReadIndices);
      },
      adds);
  AddScatter(table, "scatter_nd_add", {"X", "Updates", "Out"}, FloatsAndInts, SelectNd, adds);
  AddScatter(
      table, "scatter", {"X", "Updates", "Out"}, FloatsAndInts,
      [](OpKernel& op) { return SelectAxisSlices(op, "Ids", 0, ReadIndices); },
      [](const OpAttrs& attrs) -> absl::StatusOr<Write> {
        return attrs.Bool("overwrite") ? Write::kReplace : Write::kReplaceBySum;
      });
  table->Add("index_put", IndexPut, IndexPutGrad);
}

}  // namespace weft
