// Elements picked by numbers that a tensor holds: gather, scatter, one_hot, ...
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/broadcast.h"
#include "ops/cpu/families.h"
#include "ops/cpu/view.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The numbers of a tensor, each in [0, size) or, where `from_end`, counted from the end: as int64.
absl::StatusOr<std::vector<int64_t>> ReadIndices(absl::string_view slot, const Tensor& tensor,
                                                 int64_t size, bool from_end = false) {
  std::vector<int64_t> indices(tensor.size());
  WEFT_RETURN_IF_ERROR((ForElementType<int64_t, int32_t>(
      absl::StrCat("input ", slot), tensor, [&](auto tag) -> absl::Status {
        const auto* values = tensor.data<typename decltype(tag)::type>();
        for (int64_t i = 0; i < tensor.size(); ++i) {
          indices[i] = values[i] < 0 && from_end ? values[i] + size : values[i];
          if (indices[i] >= 0 && indices[i] < size) continue;
          return absl::InvalidArgumentError(absl::StrCat(
              "input ", slot, ": ", values[i], " at position ", i, " is not in [0, ", size, ")"));
        }
        return absl::OkStatus();
      })));
  return indices;
}

int64_t CountBefore(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).first(axis));
}
int64_t CountAfter(const Dims& dims, size_t axis) {
  return NumElements(absl::MakeConstSpan(dims).subspan(axis + 1));
}

// --- Layers along an axis: gather, index_select, index_add ---------------------------------------

// Calls visit(place of a layer's row in the tensor, place in the picked one, length) for the layers
// of these numbers along the axis.
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

size_t AxisOfAttr(int64_t axis, const Dims& dims) { return axis < 0 ? axis + dims.size() : axis; }

absl::StatusOr<Kernel> Pick(const KernelSpec& spec, const char* axis_attr) {
  OpKernel op(spec);
  const In x = op.in("X"), index = op.in("Index");
  const Out out = op.out("Out");
  const int64_t axis = spec.attrs.Int(axis_attr);
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const size_t a = AxisOfAttr(axis, dims);
    WEFT_ASSIGN_OR_RETURN(const auto indices,
                          ReadIndices("Index", index(ctx), dims[a], /*from_end=*/true));
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
    const size_t a = AxisOfAttr(axis, dims);
    WEFT_ASSIGN_OR_RETURN(const auto indices,
                          ReadIndices("Index", index(ctx), dims[a], /*from_end=*/true));
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
    const size_t a = AxisOfAttr(axis, dims);
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
    const size_t a = AxisOfAttr(axis, dims);
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

// Out = X, with row Ids[i] replaced by Updates[i] or, where not `overwrite`, by the sum of all rows
// of Updates with that id.
absl::StatusOr<Kernel> Scatter(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), ids = op.in("Ids"), updates = op.in("Updates");
  const Out out = op.out("Out");
  const bool overwrite = spec.attrs.Bool("overwrite");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
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

// Where the parts that the rows of Index name begin in a tensor of these dims.
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
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto places, ReadPlaces(index(ctx), x(ctx).dims()));
    const int64_t n = PartSize(index(ctx), x(ctx).dims());
    T* to = out.elements<T>(ctx);
    for (int64_t place : places) to = std::copy_n(x.elements<T>(ctx) + place, n, to);
    return absl::OkStatus();
  });
}

// Adds the parts `from` to `to` of these dims.
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
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
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

// Where the parts that index_put writes begin: tensor d of `indices`, all broadcast with each
// other, has their numbers along dimension d of a tensor of these dims.
struct Parts {
  Dims shape;                   // of the broadcast indices
  std::vector<int64_t> places;  // one per position
  int64_t size;                 // elements of a part
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
                          ReadIndices("indices", indices(ctx, d), dims[d], /*from_end=*/true));
    WEFT_ASSIGN_OR_RETURN(const Broadcast shapes,
                          AlignShapes(parts.shape, indices(ctx, d).dims(), /*axis=*/-1));
    Walk(MakeLoopNest(shapes.out, shapes.x, shapes.y),
         [&](int64_t i, int64_t j) { parts.places[i] += numbers[j] * strides[d]; });
  }
  parts.size = NumElements(absl::MakeConstSpan(dims).subspan(indices.count()));
  return parts;
}

// The dims of the parts together, and those of `value` aligned to them, which must not exceed them.
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

// out = x, with the parts that `indices` name replaced by value, or value added to them: the last
// one, or all, where several are of one place.
absl::StatusOr<Kernel> IndexPut(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("x"), indices = op.in("indices"), value = op.in("value");
  const Out out = op.out("out");
  const bool adds = spec.attrs.Bool("accumulate");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
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

// x@GRAD = out@GRAD, 0 where parts were replaced; value@GRAD = out@GRAD at the places of the parts,
// 0 where another one took its place, summed over the dimensions along which value was repeated.
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

// --- Beams: gather_tree --------------------------------------------------------------------------

// Out[t, b, k] = the number at step t of the path that ends in beam k of the last step: Parents has
// the beam of the step before.
absl::StatusOr<Kernel> GatherTree(const KernelSpec& spec) {
  OpKernel op(spec);
  const In ids = op.in("Ids"), parents = op.in("Parents");
  const Out out = op.out("Out");
  return op.Make(Indices(ids), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const int64_t steps = ids(ctx).dim(0), batch = ids(ctx).dim(1), beams = ids(ctx).dim(2);
    WEFT_ASSIGN_OR_RETURN(const auto from, ReadIndices("Parents", parents(ctx), beams));
    const T* numbers = ids.data<T>(ctx);
    T* to = out.data<T>(ctx);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t k = 0; k < beams; ++k) {
        int64_t beam = k;
        for (int64_t t = steps; t-- > 0;) {
          const int64_t row = (t * batch + b) * beams;
          to[row + k] = numbers[row + beam];
          beam = from[row + beam];
        }
      }
    }
    return absl::OkStatus();
  });
}

// --- One element per number: index_sample, take_along_axis ---------------------------------------

// Calls visit(place in the tensor, place in Index) for all of Index, whose elements are numbers
// along the axis; the other dimensions of Index are those of the tensor, or smaller.
template <typename Visit>
absl::Status ForEachAlong(const Tensor& index, const Dims& dims, size_t axis, Visit visit) {
  WEFT_ASSIGN_OR_RETURN(const auto numbers,
                        ReadIndices("Index", index, dims[axis], /*from_end=*/true));
  View view{index.dims(), RowMajorStrides(dims), 0};
  const int64_t stride = view.strides[axis];
  view.strides[axis] = 0;
  int64_t i = 0;
  ForEachRun(view, [&](int64_t place, int64_t count, int64_t step) {
    for (int64_t k = 0; k < count; ++k, ++i) visit(place + k * step + numbers[i] * stride, i);
  });
  return absl::OkStatus();
}

// Whether put_along_axis adds to what is there; otherwise it takes its place.
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
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    return ForEachAlong(index(ctx), dims, AxisOfAttr(axis, dims), [&](int64_t place, int64_t i) {
      out.elements<T>(ctx)[i] = x.elements<T>(ctx)[place];
    });
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
    return ForEachAlong(index(ctx), dims, AxisOfAttr(axis, dims), [&](int64_t place, int64_t i) {
      dx.data<T>(ctx)[place] += dout.data<T>(ctx)[i];
    });
  });
}

// Result = Input, with the elements of Value at those places: the last one where there are several,
// or all of them added to it.
absl::StatusOr<Kernel> PutAlong(const KernelSpec& spec) {
  OpKernel op(spec);
  const In input = op.in("Input"), index = op.in("Index"), value = op.in("Value");
  const Out result = op.out("Result");
  WEFT_ASSIGN_OR_RETURN(const bool adds, Adds(spec));
  const int64_t axis = spec.attrs.Int("Axis");
  return op.Make(Numbers(input), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = input(ctx).dims();
    const T* values = value.data<T>(ctx);
    T* to = result.data<T>(ctx);
    std::copy_n(input.data<T>(ctx), input(ctx).size(), to);
    return ForEachAlong(index(ctx), dims, AxisOfAttr(axis, dims), [&](int64_t place, int64_t i) {
      to[place] = adds ? static_cast<T>(Wrapping(to[place]) + Wrapping(values[i])) : values[i];
    });
  });
}

// Value@GRAD = Result@GRAD at the place of the element, 0 where another one took its place;
// Input@GRAD = Result@GRAD, 0 at places that were assigned to.
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
    const size_t along = AxisOfAttr(axis, dims);
    const T* from = dresult.data<T>(ctx);
    std::vector<int64_t> last(adds ? 0 : dresult(ctx).size(), -1);  // element put at each place
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

// --- Numbers -------------------------------------------------------------------------------------

// Out[i..., k] = 1 where X[i...] is k. Numbers that are none of the classes give a row of zeros
// where allow_out_of_range is set.
absl::StatusOr<Kernel> OneHot(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t depth = spec.attrs.Int("depth");
  const bool allows_others = spec.attrs.Bool("allow_out_of_range");
  return op.Make(Indices(x), [=](const KernelContext& ctx, auto zero) {
    const auto* classes = x.data<decltype(zero)>(ctx);
    return ForArithmeticType("output Out", out(ctx), [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      T* to = out.data<T>(ctx);
      std::fill_n(to, out(ctx).size(), T(0));
      for (int64_t i = 0; i < x(ctx).size(); ++i) {
        if (classes[i] >= 0 && classes[i] < depth) {
          to[i * depth + classes[i]] = T(1);
        } else if (!allows_others) {
          return absl::InvalidArgumentError(absl::StrCat("input X: ", classes[i], " at position ",
                                                         i, " is not in [0, ", depth, ")"));
        }
      }
      return absl::OkStatus();
    });
  });
}

// Row i of Out = row i of X[Ids[i]].
absl::StatusOr<Kernel> Multiplex(const KernelSpec& spec) {
  OpKernel op(spec);
  const In ids = op.in("Ids"), x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    WEFT_ASSIGN_OR_RETURN(const auto which, ReadIndices("Ids", ids(ctx), x.count()));
    const int64_t width = CountAfter(x(ctx).dims(), 0);
    T* to = out.elements<T>(ctx);
    for (size_t row = 0; row < which.size(); ++row) {
      const T* from = x.elements<T>(ctx, static_cast<int>(which[row]));
      to = std::copy_n(from + row * width, width, to);
    }
    return absl::OkStatus();
  });
}

// The part of a table of index_num rows over nshards that a shard has: its numbers, from 0, and
// ignore_value for the others'.
absl::StatusOr<Kernel> ShardIndex(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t size = spec.attrs.Int("index_num"), shards = spec.attrs.Int("nshards");
  const int64_t shard = spec.attrs.Int("shard_id"), ignored = spec.attrs.Int("ignore_value");
  if (size < 1 || shards < 1 || shard < 0 || shard >= shards) {
    return absl::InvalidArgumentError(absl::StrCat("attribute shard_id: ", shard, " of nshards ",
                                                   shards, ", of index_num ", size));
  }
  const int64_t width = (size + shards - 1) / shards;
  return op.InPlace(out, x).Make(
      Indices(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        WEFT_ASSIGN_OR_RETURN(const auto indices, ReadIndices("X", x(ctx), size));
        for (size_t i = 0; i < indices.size(); ++i) {
          out.data<T>(ctx)[i] =
              static_cast<T>(indices[i] / width == shard ? indices[i] % width : ignored);
        }
        return absl::OkStatus();
      });
}

}  // namespace

void AddIndexKernels(KernelTable* table) {
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
  table->Add("gather_tree", GatherTree);
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
  table->Add("one_hot_v2", OneHot);
  table->Add("multiplex", Multiplex);
  table->Add("shard_index", ShardIndex);
}

}  // namespace weft
