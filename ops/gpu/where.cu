// Elements selected by a boolean mask or by a triangle of a matrix; sums of the elements up to each
// one; the largest elements of rows.
#include <cstdint>
#include <type_traits>

#include "base/status_macros.h"
#include "ops/gpu/axis_rows.h"
#include "ops/gpu/element_check.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/kernel_util.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// --- where, tril_triu ----------------------------------------------------------------------------

template <typename T>
struct Choose {
  const bool* is_x;
  const T *x, *y;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const { out[i] = is_x[i] ? x[i] : y[i]; }
};

// Out = X where Condition holds, Y elsewhere.
absl::StatusOr<Kernel> Where(OpKernel op) {
  const In condition = op.in("Condition"), x = op.in("X"), y = op.in("Y");
  const Out out = op.out("Out");
  return op.InPlace(out, x).InPlace(out, y).Make(
      RawElements{x}, [=](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        return ForEach(ctx, x(ctx).size(),
                       Choose<T>{condition.data<bool>(ctx), x.elements<T>(ctx), y.elements<T>(ctx),
                                 out.elements<T>(ctx)});
      });
}

template <typename T>
struct SplitByCondition {
  const bool* is_x;
  const T* dout;
  T *dx, *dy;  // may be null
  WEFT_DEVICE void operator()(int64_t i) const {
    if (dx != nullptr) dx[i] = is_x[i] ? dout[i] : T(0);
    if (dy != nullptr) dy[i] = is_x[i] ? T(0) : dout[i];
  }
};

absl::StatusOr<Kernel> WhereGrad(OpKernel op) {
  op.Ignore({"X", "Y"});
  const In condition = op.in("Condition"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD"), dy = op.out("Y@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    return ForEach(ctx, dout(ctx).size(),
                   SplitByCondition<T>{condition.data<bool>(ctx), dout.data<T>(ctx),
                                       dx.data_or_null<T>(ctx), dy.data_or_null<T>(ctx)});
  });
}

template <typename T>
struct KeepTriangle {
  int64_t rows, columns, diagonal;
  bool lower;
  const T* x;
  T* out;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t above = i % columns - i / columns % rows;
    const bool is_kept = lower ? above <= diagonal : above >= diagonal;
    out[i] = is_kept ? x[i] : T(0);
  }
};

// The lower, or upper, triangle of the last two dimensions; 0 elsewhere.
absl::StatusOr<Kernel> TrilTriu(OpKernel op, const char* from, const char* to_slot) {
  const In x = op.in(from);
  const Out out = op.out(to_slot);
  const int64_t diagonal = op.attrs().Int("diagonal");
  const bool lower = op.attrs().Bool("lower");
  return op.InPlace(out, x).Make(RawElements{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& dims = x(ctx).dims();
    return ForEach(ctx, x(ctx).size(),
                   KeepTriangle<T>{dims[dims.size() - 2], dims.back(), diagonal, lower,
                                   x.elements<T>(ctx), out.elements<T>(ctx)});
  });
}

// --- cumsum --------------------------------------------------------------------------------------

// A thread sums a row.
template <typename T>
struct Scan {
  using A = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  gpu::Rows rows;
  bool exclusive, reverse;
  const T* x;
  T* out;
  WEFT_DEVICE void operator()(int64_t r) const {
    A sum = 0;
    for (int64_t k = 0; k < rows.length; ++k) {
      const int64_t at = rows.At(r, reverse ? rows.length - 1 - k : k);
      const A before = sum;
      sum += static_cast<A>(x[at]);
      out[at] = static_cast<T>(exclusive ? before : sum);
    }
  }
};

absl::StatusOr<Kernel> Cumsum(OpKernel op, const char* from, const char* to, bool is_gradient) {
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  const int64_t axis = op.attrs().Int("axis");
  const bool exclusive = op.attrs().Bool("exclusive"), flatten = op.attrs().Bool("flatten");
  const bool reverse = op.attrs().Bool("reverse") != is_gradient;
  return op.InPlace(out, x).Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims& dims = out(ctx).dims();
    const AxisRows rows = flatten ? OneRow(dims) : RowsAlong(dims, axis);
    return ForEach(ctx, rows.count(),
                   Scan<T>{gpu::Rows(rows), exclusive, reverse, x.data<T>(ctx), out.data<T>(ctx)});
  });
}

// --- Order: arg_max, arg_min, top_k --------------------------------------------------------------

// An element of a row with its index; index -1: none.
template <typename T>
struct Ranked {
  T value;
  int64_t index;
};

// NaN is larger than all numbers. As Less of ops/cpu/order.h.
template <typename T>
WEFT_DEVICE bool IsLess(T a, T b) {
  return b != b ? a == a : a < b;
}

// Whether a precedes b in sorted order; of equal ones the first in the row does.
template <typename T>
WEFT_DEVICE bool Precedes(bool descending, const Ranked<T>& a, const Ranked<T>& b) {
  if (descending ? IsLess(b.value, a.value) : IsLess(a.value, b.value)) return true;
  if (descending ? IsLess(a.value, b.value) : IsLess(b.value, a.value)) return false;
  return a.index < b.index;
}

template <typename T>
struct FirstOf {
  bool descending;
  WEFT_DEVICE Ranked<T> operator()(const Ranked<T>& a, const Ranked<T>& b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    return Precedes(descending, b, a) ? b : a;
  }
};

template <typename T, typename Place>
struct ArgExtremeOf {
  gpu::Rows rows;
  bool largest;
  const T* x;
  Place* out;
  WEFT_DEVICE void operator()(int64_t r, const gpu::Block& block) const {
    const Ranked<T> best = block.Reduce(
        rows.length, Ranked<T>{T(0), -1},
        [&](int64_t i) {
          return Ranked<T>{x[rows.At(r, i)], i};
        },
        FirstOf<T>{largest});
    block.Once([&] { out[r] = static_cast<Place>(best.index); });
  }
};

// Out = the index of the largest, or smallest, element; of the first if several are equal.
absl::StatusOr<Kernel> ArgExtreme(OpKernel op, bool largest) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t axis = op.attrs().Int("axis");
  const bool flatten = op.attrs().Bool("flatten");
  return op.Make(AllTypesButHalf(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const AxisRows rows = flatten ? OneRow(x(ctx).dims()) : RowsAlong(x(ctx).dims(), axis);
    if (rows.length == 0) return absl::InvalidArgumentError("input X: has no elements");
    return ForElementType<int64_t, int32_t>("output Out", out(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      return ForEachRow(
          ctx, rows.count(), rows.length,
          ArgExtremeOf<T, Place>{gpu::Rows(rows), largest, x.data<T>(ctx), out.data<Place>(ctx)});
    });
  });
}

// Selects one after the other: k passes over the row.
template <typename T>
struct TopOf {
  gpu::Rows rows, kept;
  bool descending;
  const T* x;
  T* out;
  int64_t* indices;
  WEFT_DEVICE void operator()(int64_t r, const gpu::Block& block) const {
    Ranked<T> last{T(0), -1};
    for (int64_t k = 0; k < kept.length; ++k) {
      last = block.Reduce(
          rows.length, Ranked<T>{T(0), -1},
          [&](int64_t i) {
            const Ranked<T> candidate{x[rows.At(r, i)], i};
            const bool is_left = last.index < 0 || Precedes(descending, last, candidate);
            return is_left ? candidate : Ranked<T>{T(0), -1};
          },
          FirstOf<T>{descending});
      block.Once([&] {
        out[kept.At(r, k)] = last.value;
        indices[kept.At(r, k)] = last.index;
      });
    }
  }
};

// The first elements of each row in sorted order, with their indices: Out and Indices.
absl::StatusOr<Kernel> TopK(OpKernel op, const char* axis_attr, const char* descending_attr) {
  const In x = op.in("X");
  const Out out = op.out("Out"), indices = op.out("Indices");
  const int64_t axis = axis_attr == nullptr ? -1 : op.attrs().Int(axis_attr);
  const bool descending = descending_attr == nullptr || op.attrs().Bool(descending_attr);
  return op.Make(FloatsAndInts(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(x(ctx).dims(), axis), kept = RowsAlong(out(ctx).dims(), axis);
    return ForEachRow(ctx, rows.count(), rows.length,
                      TopOf<T>{gpu::Rows(rows), gpu::Rows(kept), descending, x.data<T>(ctx),
                               out.data<T>(ctx), indices.data<int64_t>(ctx)});
  });
}

// Indices of a row differ, so that no two threads write one element.
template <typename T, typename Place>
struct ScatterChosen {
  gpu::Rows rows, kept;
  const Place* places;
  gpu::ElementCheck check;
  const T* dout;
  T* dx;
  WEFT_DEVICE void operator()(int64_t i) const {
    const int64_t r = i / kept.length, at = kept.At(r, i % kept.length);
    const int64_t place = places[at];
    if (check.IsInRange(place, 0, rows.length, at)) dx[rows.At(r, place)] = dout[at];
  }
};

absl::StatusOr<Kernel> TopKGrad(OpKernel op, const char* axis_attr) {
  op.Ignore({"X"});
  const In indices = op.in("Indices"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t axis = axis_attr == nullptr ? -1 : op.attrs().Int(axis_attr);
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const AxisRows rows = RowsAlong(dx(ctx).dims(), axis);
    AxisRows kept = rows;
    kept.length = rows.count() == 0 ? 0 : dout(ctx).size() / rows.count();
    WEFT_RETURN_IF_ERROR(CheckSize("Indices", indices(ctx), dout(ctx).size()));
    WEFT_RETURN_IF_ERROR(Clear(ctx, dx(ctx).raw(), dx(ctx).bytes()));
    return ForElementType<int64_t, int32_t>("input Indices", indices(ctx), [&](auto tag) {
      using Place = typename decltype(tag)::type;
      return ForEach(ctx, dout(ctx).size(),
                     ScatterChosen<T, Place>{
                         gpu::Rows(rows), gpu::Rows(kept), indices.data<Place>(ctx),
                         gpu::ElementCheck(ctx, "Indices"), dout.data<T>(ctx), dx.data<T>(ctx)});
    });
  });
}

// --- accuracy ------------------------------------------------------------------------------------

struct CountCorrect {
  int64_t samples, k;
  const int64_t *found, *labels;
  float* accuracy;
  int32_t *correct, *total;  // may be null
  WEFT_DEVICE void operator()(int64_t, const gpu::Block& block) const {
    const int count = block.Sum<int>(samples, [&](int64_t i) {
      int is_found = 0;
      for (int64_t j = i * k; j < (i + 1) * k; ++j) is_found |= found[j] == labels[i] ? 1 : 0;
      return is_found;
    });
    block.Once([&] {
      *accuracy = samples == 0 ? 0 : static_cast<float>(count) / samples;
      if (correct != nullptr) *correct = count;
      if (total != nullptr) *total = static_cast<int32_t>(samples);
    });
  }
};

// The share of samples whose label is among the k values of Indices.
absl::StatusOr<Kernel> Accuracy(OpKernel op) {
  op.Ignore({"Out"});
  const In indices = op.in("Indices"), label = op.in("Label");
  const Out accuracy = op.out("Accuracy"), correct = op.out("Correct"), total = op.out("Total");
  return op.Supports(ElementTypesOf<int64_t>()).Make([=](const KernelContext& ctx) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckDType("Indices", indices(ctx), DType::kInt64));
    WEFT_RETURN_IF_ERROR(CheckDType("Label", label(ctx), DType::kInt64));
    const int64_t samples = indices(ctx).dim(0);
    const int64_t k = NumElements(absl::MakeConstSpan(indices(ctx).dims()).subspan(1));
    WEFT_RETURN_IF_ERROR(CheckSize("Label", label(ctx), samples));
    return ForEachRow(ctx, 1, samples,
                      CountCorrect{samples, k, indices.data<int64_t>(ctx), label.data<int64_t>(ctx),
                                   accuracy.data<float>(ctx), correct.data_or_null<int32_t>(ctx),
                                   total.data_or_null<int32_t>(ctx)});
  });
}

}  // namespace

void AddGpuWhereKernels(KernelTable* table) {
  table->Add("where", Where, WhereGrad);
  table->Add(
      "tril_triu", [](const KernelSpec& spec) { return TrilTriu(spec, "X", "Out"); },
      [](const KernelSpec& spec) { return TrilTriu(spec, "Out@GRAD", "X@GRAD"); });
  table->Add(
      "cumsum", [](const KernelSpec& spec) { return Cumsum(spec, "X", "Out", false); },
      [](const KernelSpec& spec) {
        return Cumsum(spec, "Out@GRAD", "X@GRAD", /*is_gradient=*/true);
      });
  table->Add("arg_max", [](const KernelSpec& spec) { return ArgExtreme(spec, true); });
  table->Add("arg_min", [](const KernelSpec& spec) { return ArgExtreme(spec, false); });
  table->Add(
      "top_k", [](const KernelSpec& spec) { return TopK(spec, nullptr, nullptr); },
      [](const KernelSpec& spec) { return TopKGrad(spec, nullptr); });
  table->Add(
      "top_k_v2", [](const KernelSpec& spec) { return TopK(spec, "axis", "largest"); },
      [](const KernelSpec& spec) { return TopKGrad(spec, "axis"); });
  table->Add("accuracy", Accuracy);
}

}  // namespace weft
