// Elements and slices that a tensor of indices names: read (gather, index_select), written
// (scatter, put_along_axis) or added to (index_add).
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/strided_view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- Layers along an axis: gather, index_select, index_add ---------------------------------------

// Calls visit(index of a layer's row in the tensor, index in the gathered one, length) for the
// layers of these indices along the axis.
template <typename Visit>
void ForEachPicked(const Dims& dims, size_t axis, const std::vector<int64_t>& indices,
                   Visit visit) {
  const int64_t outer = CountBefore(dims, axis), inner = CountAfter(dims, axis);
  int64_t picked = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices) {
      visit((o * dims[axis] + index) * inner, picked, inner);
      picked += inner;
    }
  }
}

absl::StatusOr<Kernel> Pick(const KernelSpec& spec, const char* axis_attr) {
  OpKernel op(spec);
  const In x = op.in("X"), index = op.in("Index");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int(axis_attr);
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndicesFromEnd("Index", index(ctx), dims[a]));
    ForEachPicked(dims, a, indices, [&](int64_t from, int64_t to, int64_t n) {
      std::copy_n(x.elements<T>(ctx) + from, n, out.elements<T>(ctx) + to);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PickGrad(const KernelSpec& spec, const char* axis_attr) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In index = op.in("Index"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = spec.attrs.Int(axis_attr);
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dx(ctx).dims();
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndicesFromEnd("Index", index(ctx), dims[a]));
    T* to = dx.data<T>(ctx);
    const T* from = dout.data<T>(ctx);
    std::fill_n(to, dx(ctx).size(), T(0));
    ForEachPicked(dims, a, indices, [&](int64_t place, int64_t picked, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[place + i] += from[picked + i];
    });
    return absl::OkStatus();
  });
}

// Out = X, with AddValue's layers added at Index.
absl::StatusOr<Kernel> IndexAdd(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), index = op.in("Index"), value = op.in("AddValue");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Floats(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndices("Index", index(ctx), dims[a]));
    T* to = out.data<T>(ctx);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), to);
    ForEachPicked(dims, a, indices, [&](int64_t place, int64_t picked, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[place + i] += value.data<T>(ctx)[picked + i];
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> IndexAddGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"AddValue"});
  const In index = op.in("Index"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dvalue = op.out("AddValue@GRAD");
  const int64_t axis = spec.attrs.Int("axis");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    const size_t a = NormalizedAxis(axis, dims.size());
    WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndices("Index", index(ctx), dims[a]));
    const T* from = dout.data<T>(ctx);
    if (Tensor* gradient = dx.get(ctx)) {
      std::copy_n(from, dout(ctx).size(), gradient->data<T>());
    }
    if (Tensor* gradient = dvalue.get(ctx)) {
      ForEachPicked(dims, a, indices, [&](int64_t place, int64_t picked, int64_t n) {
        std::copy_n(from + place, n, gradient->data<T>() + picked);
      });
    }
    return absl::OkStatus();
  });
}

// --- Rows: scatter -------------------------------------------------------------------------------

// Out = X, with row Ids[i] replaced by Updates[i] or, without `overwrite`, by the sum of all rows
// of Updates with that id.
absl::StatusOr<Kernel> Scatter(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), ids = op.in("Ids"), updates = op.in("Updates");
  const Out out = op.out("Out");
  const bool overwrite = spec.attrs.Bool("overwrite");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const auto rows, ReadIndices("Ids", ids(ctx), dims[0]));
    T* to = out.data<T>(ctx);
    const T* from = updates.data<T>(ctx);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), to);
    if (!overwrite) {
      ForEachPicked(dims, 0, rows,
                    [&](int64_t place, int64_t, int64_t n) { std::fill_n(to + place, n, T(0)); });
    }
    ForEachPicked(dims, 0, rows, [&](int64_t place, int64_t picked, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const T before = overwrite ? T(0) : to[place + i];
        to[place + i] = static_cast<T>(Wrapping(from[picked + i]) + Wrapping(before));
      }
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> ScatterGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Updates"});
  const In ids = op.in("Ids"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dupdates = op.out("Updates@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const auto rows, ReadIndices("Ids", ids(ctx), dims[0]));
    const T* from = dout.data<T>(ctx);
    if (Tensor* gradient = dx.get(ctx)) {
      T* to = gradient->data<T>();
      std::copy_n(from, dout(ctx).size(), to);
      ForEachPicked(dims, 0, rows,
                    [&](int64_t place, int64_t, int64_t n) { std::fill_n(to + place, n, T(0)); });
    }
    if (Tensor* gradient = dupdates.get(ctx)) {
      ForEachPicked(dims, 0, rows, [&](int64_t place, int64_t picked, int64_t n) {
        std::copy_n(from + place, n, gradient->data<T>() + picked);
      });
    }
    return absl::OkStatus();
  });
}

// --- Several dimensions at once: gather_nd, scatter_nd_add ---------------------------------------

// The offsets of the slices that the rows of Index select in a tensor of these dims.
absl::StatusOr<std::vector<int64_t>> ReadPlaces(const Tensor& index, const Dims& dims) {
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
  return places;
}

int64_t PartSize(const Tensor& index, const Dims& dims) {
  return NumElements(absl::MakeConstSpan(dims).subspan(index.dims().back()));
}

absl::StatusOr<Kernel> GatherNd(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), index = op.in("Index");
  const Out out = op.out("Out");
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto places, ReadPlaces(index(ctx), x(ctx).dims()));
    const int64_t n = PartSize(index(ctx), x(ctx).dims());
    T* to = out.elements<T>(ctx);
    for (int64_t place : places) to = std::copy_n(x.elements<T>(ctx) + place, n, to);
    return absl::OkStatus();
  });
}

// Scatters: adds the slices `from` to `to`, of these dims.
template <typename T>
absl::Status AddParts(const Tensor& index, const Dims& dims, const T* from, T* to) {
  WEFT_ASSIGN_OR_RETURN(const auto places, ReadPlaces(index, dims));
  const int64_t n = PartSize(index, dims);
  for (int64_t place : places) {
    for (int64_t i = 0; i < n; ++i) to[place + i] += *from++;
  }
  return absl::OkStatus();
}

absl::StatusOr<Kernel> GatherNdGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In index = op.in("Index"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
    return AddParts(index(ctx), dx(ctx).dims(), dout.data<T>(ctx), dx.data<T>(ctx));
  });
}

absl::StatusOr<Kernel> ScatterNdAdd(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), index = op.in("Index"), updates = op.in("Updates");
  const Out out = op.out("Out");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), out.data<T>(ctx));
    return AddParts(index(ctx), x(ctx).dims(), updates.data<T>(ctx), out.data<T>(ctx));
  });
}

absl::StatusOr<Kernel> ScatterNdAddGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Updates"});
  const In index = op.in("Index"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dupdates = op.out("Updates@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const T* from = dout.data<T>(ctx);
    WEFT_ASSIGN_OR_RETURN(const auto places, ReadPlaces(index(ctx), dout(ctx).dims()));
    const int64_t n = PartSize(index(ctx), dout(ctx).dims());
    if (Tensor* gradient = dx.get(ctx)) {
      std::copy_n(from, dout(ctx).size(), gradient->data<T>());
    }
    if (Tensor* gradient = dupdates.get(ctx)) {
      T* to = gradient->data<T>();
      for (int64_t place : places) to = std::copy_n(from + place, n, to);
    }
    return absl::OkStatus();
  });
}

// --- One part per position: index_put ------------------------------------------------------------

// The offsets of the slices that index_put writes: tensor d of `indices`, all broadcast with each
// other, has their indices along dimension d of a tensor of these dims.
struct Parts {
  Dims shape;                   // of the broadcast indices
  std::vector<int64_t> places;  // one per position
  int64_t size;                 // elements of a slice
};

absl::StatusOr<Parts> ReadParts(const In& indices, const KernelContext& ctx, const Dims& dims) {
  Parts parts;
  for (int d = 0; d < indices.count(); ++d) {
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(parts.shape, indices(ctx, d).dims(), /*axis=*/-1));
    parts.shape = shapes.out;
  }
  parts.places.assign(NumElements(parts.shape), 0);
  const Dims strides = RowMajorStrides(dims);
  for (int d = 0; d < indices.count(); ++d) {
    WEFT_ASSIGN_OR_RETURN(const auto numbers,
                          ReadIndicesFromEnd("indices", indices(ctx, d), dims[d]));
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(parts.shape, indices(ctx, d).dims(), /*axis=*/-1));
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y),
         [&](int64_t i, int64_t j) { parts.places[i] += numbers[j] * strides[d]; });
  }
  parts.size = NumElements(absl::MakeConstSpan(dims).subspan(indices.count()));
  return parts;
}

// The dims of all slices together, and those of `value` aligned to them, which must not exceed
// them.
absl::StatusOr<Broadcast> AlignValue(const Parts& parts, const Dims& dims, int num_indices,
                                     const Dims& value) {
  Dims all = parts.shape;
  all.insert(all.end(), dims.begin() + num_indices, dims.end());
  WEFT_ASSIGN_OR_RETURN(Broadcast shapes, AlignShapes(all, value, /*axis=*/-1));
  if (shapes.out == all) return shapes;
  return absl::InvalidArgumentError(
      absl::StrCat("input value: expected dimensions that broadcast to ", DimsToString(all),
                   ", found ", DimsToString(value)));
}

// out = x, with the slices that `indices` select replaced by value, or with value added. If several
// select the same slice, the last one replaces it, or all are added.
absl::StatusOr<Kernel> IndexPut(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("x"), indices = op.in("indices"), value = op.in("value");
  const Out out = op.out("out");
  const bool adds = spec.attrs.Bool("accumulate");
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const Parts parts, ReadParts(indices, ctx, dims));
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignValue(parts, dims, indices.count(), value(ctx).dims()));
    const T* values = value.data<T>(ctx);
    T* to = out.data<T>(ctx);
    std::copy_n(x.data<T>(ctx), x(ctx).size(), to);
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y), [&](int64_t i, int64_t j) {
      T& element = to[parts.places[i / parts.size] + i % parts.size];
      element = adds ? static_cast<T>(Wrapping(element) + Wrapping(values[j])) : values[j];
    });
    return absl::OkStatus();
  });
}

// x@GRAD = out@GRAD, 0 where slices were replaced. value@GRAD = out@GRAD of the slices, 0 if
// another one replaced it, summed over broadcast dimensions of value.
absl::StatusOr<Kernel> IndexPutGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"x", "value"});
  const In indices = op.in("indices"), dout = op.in("out@GRAD");
  const Out dx = op.out("x@GRAD"), dvalue = op.out("value@GRAD");
  const bool adds = spec.attrs.Bool("accumulate");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dout(ctx).dims();
    const T* from = dout.data<T>(ctx);
    WEFT_ASSIGN_OR_RETURN(const Parts parts, ReadParts(indices, ctx, dims));
    if (Tensor* gradient = dx.get(ctx)) {
      T* to = gradient->data<T>();
      std::copy_n(from, dout(ctx).size(), to);
      if (!adds) {
        for (int64_t place : parts.places) std::fill_n(to + place, parts.size, T(0));
      }
    }
    if (Tensor* gradient = dvalue.get(ctx)) {
      WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                            AlignValue(parts, dims, indices.count(), gradient->dims()));
      std::vector<T> full;
      full.reserve(NumElements(shapes.out));
      for (int64_t place : parts.places) {
        full.insert(full.end(), from + place, from + place + parts.size);
      }
      if (!adds) {
        std::vector<bool> taken(dout(ctx).size(), false);
        for (size_t p = parts.places.size(); parts.size > 0 && p-- > 0;) {
          if (taken[parts.places[p]]) std::fill_n(&full[p * parts.size], parts.size, T(0));
          taken[parts.places[p]] = true;
        }
      }
      SumBroadcast(full.data(), shapes.out, shapes.y, 1, gradient->data<T>());
    }
    return absl::OkStatus();
  });
}

// --- One element per number: index_sample, take_along_axis ---------------------------------------

// Calls visit(index in the tensor, index in Index) for all elements of Index, which are indices
// along the axis. The other dimensions of Index are at most those of the tensor.
template <typename Visit>
absl::Status ForEachAlong(const Tensor& index, const Dims& dims, size_t axis, Visit visit) {
  WEFT_ASSIGN_OR_RETURN(const auto numbers, ReadIndicesFromEnd("Index", index, dims[axis]));
  View view{index.dims(), RowMajorStrides(dims), 0};
  const int64_t stride = view.strides[axis];
  view.strides[axis] = 0;
  int64_t i = 0;
  ForEachRun(view, [&](int64_t place, int64_t count, int64_t step) {
    for (int64_t k = 0; k < count; ++k, ++i) visit(place + k * step + numbers[i] * stride, i);
  });
  return absl::OkStatus();
}

// Whether put_along_axis adds to the element or replaces it.
absl::StatusOr<bool> Adds(const KernelSpec& spec) {
  const std::string& reduce = spec.attrs.String("Reduce");
  if (reduce == "assign") return false;
  if (reduce == "add" && spec.attrs.Bool("Include_self")) return true;
  return absl::UnimplementedError(
      absl::StrCat("attribute Reduce: no kernel for ", reduce,
                   spec.attrs.Bool("Include_self") ? "" : " without the elements of Input"));
}

struct AlongSlots {
  const char *x, *out;
  const char* axis_attr;  // null: axis 1
};

absl::StatusOr<Kernel> TakeAlong(const KernelSpec& spec, AlongSlots slots) {
  OpKernel op(spec);
  const In x = op.in(slots.x), index = op.in("Index");
  const Out out = op.out(slots.out);
  const int64_t axis = slots.axis_attr == nullptr ? 1 : spec.attrs.Int(slots.axis_attr);
  return op.Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    return ForEachAlong(
        index(ctx), dims, NormalizedAxis(axis, dims.size()),
        [&](int64_t place, int64_t i) { out.elements<T>(ctx)[i] = x.elements<T>(ctx)[place]; });
  });
}

absl::StatusOr<Kernel> TakeAlongGrad(const KernelSpec& spec, AlongSlots slots) {
  OpKernel op(spec);
  op.Ignore({slots.x});
  const In index = op.in("Index"), dout = op.in(absl::StrCat(slots.out, "@GRAD"));
  const Out dx = op.out(absl::StrCat(slots.x, "@GRAD"));
  const int64_t axis = slots.axis_attr == nullptr ? 1 : spec.attrs.Int(slots.axis_attr);
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = dx(ctx).dims();
    std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
    return ForEachAlong(
        index(ctx), dims, NormalizedAxis(axis, dims.size()),
        [&](int64_t place, int64_t i) { dx.data<T>(ctx)[place] += dout.data<T>(ctx)[i]; });
  });
}

// Result = Input, with the elements of Value at those positions: the last one if there are several,
// or all of them added.
absl::StatusOr<Kernel> PutAlong(const KernelSpec& spec) {
  OpKernel op(spec);
  const In input = op.in("Input"), index = op.in("Index"), value = op.in("Value");
  const Out result = op.out("Result");
  WEFT_ASSIGN_OR_RETURN(const bool adds, Adds(spec));
  const int64_t axis = spec.attrs.Int("Axis");
  return op.Make(FloatsAndInts(input), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = input(ctx).dims();
    const T* values = value.data<T>(ctx);
    T* to = result.data<T>(ctx);
    std::copy_n(input.data<T>(ctx), input(ctx).size(), to);
    return ForEachAlong(
        index(ctx), dims, NormalizedAxis(axis, dims.size()), [&](int64_t place, int64_t i) {
          to[place] = adds ? static_cast<T>(Wrapping(to[place]) + Wrapping(values[i])) : values[i];
        });
  });
}

// Value@GRAD = Result@GRAD at the position of the element, 0 if another one replaced it. Input@GRAD
// = Result@GRAD, 0 at assigned positions.
absl::StatusOr<Kernel> PutAlongGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Input", "Value", "Result"});
  const In index = op.in("Index"), dresult = op.in("Result@GRAD");
  const Out dinput = op.out("Input@GRAD"), dvalue = op.out("Value@GRAD");
  WEFT_ASSIGN_OR_RETURN(const bool adds, Adds(spec));
  const int64_t axis = spec.attrs.Int("Axis");
  return op.Make(Floats(dresult), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = dresult(ctx).dims();
    const size_t along = NormalizedAxis(axis, dims.size());
    const T* from = dresult.data<T>(ctx);
    std::vector<int64_t> last(adds ? 0 : dresult(ctx).size(),
                              -1);  // element written to each position
    if (!adds) {
      WEFT_RETURN_IF_ERROR(ForEachAlong(index(ctx), dims, along,
                                        [&](int64_t place, int64_t i) { last[place] = i; }));
    }
    if (T* to = dvalue.data_or_null<T>(ctx)) {
      WEFT_RETURN_IF_ERROR(ForEachAlong(index(ctx), dims, along, [&](int64_t place, int64_t i) {
        to[i] = adds || last[place] == i ? from[place] : T(0);
      }));
    }
    if (T* to = dinput.data_or_null<T>(ctx)) {
      for (int64_t i = 0; i < dresult(ctx).size(); ++i) {
        to[i] = adds || last[i] == -1 ? from[i] : T(0);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

void AddGatherScatterKernels(KernelTable* table) {
  table->Add("gather", [](const KernelSpec& spec) { return Pick(spec, "axis"); });
  table->Add("gather_grad", [](const KernelSpec& spec) { return PickGrad(spec, "axis"); });
  table->Add("index_select", [](const KernelSpec& spec) { return Pick(spec, "dim"); });
  table->Add("index_select_grad", [](const KernelSpec& spec) { return PickGrad(spec, "dim"); });
  table->Add("index_add", IndexAdd);
  table->Add("index_add_grad", IndexAddGrad);
  table->Add("scatter", Scatter);
  table->Add("scatter_grad", ScatterGrad);
  table->Add("index_put", IndexPut);
  table->Add("index_put_grad", IndexPutGrad);
  table->Add("gather_nd", GatherNd);
  table->Add("gather_nd_grad", GatherNdGrad);
  table->Add("scatter_nd_add", ScatterNdAdd);
  table->Add("scatter_nd_add_grad", ScatterNdAddGrad);
  const AlongSlots sample = {"X", "Out", nullptr}, take = {"Input", "Result", "Axis"};
  table->Add("index_sample", [=](const KernelSpec& spec) { return TakeAlong(spec, sample); });
  table->Add("index_sample_grad",
             [=](const KernelSpec& spec) { return TakeAlongGrad(spec, sample); });
  table->Add("take_along_axis", [=](const KernelSpec& spec) { return TakeAlong(spec, take); });
  table->Add("take_along_axis_grad",
             [=](const KernelSpec& spec) { return TakeAlongGrad(spec, take); });
  table->Add("put_along_axis", PutAlong);
  table->Add("put_along_axis_grad", PutAlongGrad);
}

}  // namespace weft
