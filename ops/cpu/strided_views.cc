// Ops that read elements of one tensor in another order: Out is a view of X. A new one is a
// function that tells the view, and a line in AddViewKernels; its gradient follows.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cpu/families.h"
#include "ops/cpu/view.h"
#include "ops/op_kernel.h"
#include "ops/schema/slice_range.h"

namespace weft {
namespace {

// The view of a tensor of dims `x` that an op with output of dims `out` reads. Inference has
// checked attributes and dims.
using ViewOf = std::function<View(const Dims& x, const Dims& out)>;
using MakeView = ViewOf (*)(const OpAttrs&);

size_t Axis(int64_t axis, size_t rank) { return axis < 0 ? axis + rank : axis; }

ViewOf Transpose(const OpAttrs& attrs) {
  return [axes = attrs.Ints("axis")](const Dims& x, const Dims&) {
    const View whole = WholeView(x);
    View view;
    for (int64_t axis : axes) {
      view.extents.push_back(x[Axis(axis, x.size())]);
      view.strides.push_back(whole.strides[Axis(axis, x.size())]);
    }
    return view;
  };
}

ViewOf StridedSlice(const OpAttrs& attrs) {
  std::vector<int64_t> steps(attrs.Ints("axes").size(), 1);
  if (attrs.Has("strides")) steps = attrs.Ints("strides");
  return [axes = attrs.Ints("axes"), starts = attrs.Ints("starts"), ends = attrs.Ints("ends"),
          steps](const Dims& x, const Dims&) {
    View view = WholeView(x);
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t axis = Axis(axes[i], x.size());
      const SliceRange range = TakeSlice(starts[i], ends[i], steps[i], x[axis]);
      view.offset += range.begin * view.strides[axis];
      view.extents[axis] = range.count;
      view.strides[axis] *= steps[i];
    }
    return view;
  };
}

ViewOf Flip(const OpAttrs& attrs) {
  return [axes = attrs.Ints("axis")](const Dims& x, const Dims&) {
    View view = WholeView(x);
    for (int64_t a : axes) {
      const size_t axis = Axis(a, x.size());
      view.offset += (x[axis] - 1) * view.strides[axis];
      view.strides[axis] *= -1;
    }
    return view;
  };
}

// Repeated along new dimensions, in front, and those of 1.
ViewOf Expand(const OpAttrs&) {
  return [](const Dims& x, const Dims& out) {
    const Dims strides = RowMajorStrides(x);
    const size_t missing = out.size() - x.size();
    View view{out, Dims(out.size(), 0), 0};
    for (size_t d = 0; d < x.size(); ++d) {
      if (x[d] == out[missing + d]) view.strides[missing + d] = strides[d];
    }
    return view;
  };
}

// Each dimension repeated as a whole.
ViewOf Tile(const OpAttrs&) {
  return [](const Dims& x, const Dims& out) {
    const Dims strides = RowMajorStrides(x);
    const size_t missing = out.size() - x.size();
    View view;
    for (size_t d = 0; d < out.size(); ++d) {
      const int64_t extent = d < missing ? 1 : x[d - missing];
      view.extents.push_back(extent == 0 ? 0 : out[d] / extent);
      view.strides.push_back(0);
      view.extents.push_back(extent);
      view.strides.push_back(d < missing ? 0 : strides[d - missing]);
    }
    return view;
  };
}

// Each element along a dimension repeated.
ViewOf RepeatInterleave(const OpAttrs& attrs) {
  return [dim = attrs.Int("dim"), repeats = attrs.Int("Repeats")](const Dims& x, const Dims&) {
    View view = WholeView(x);
    const size_t after = Axis(dim, x.size()) + 1;
    view.extents.insert(view.extents.begin() + after, repeats);
    view.strides.insert(view.strides.begin() + after, 0);
    return view;
  };
}

ViewOf Crop(const OpAttrs& attrs) {
  return [offsets = attrs.Ints("offsets")](const Dims& x, const Dims& out) {
    View view{out, RowMajorStrides(x), 0};
    for (size_t d = 0; d < offsets.size(); ++d) view.offset += offsets[d] * view.strides[d];
    return view;
  };
}

// x under other dims, of as many elements, then with its dimensions in this order.
View Transposed(const Dims& dims, std::initializer_list<size_t> order) {
  const Dims strides = RowMajorStrides(dims);
  View view;
  for (size_t d : order) {
    view.extents.push_back(dims[d]);
    view.strides.push_back(strides[d]);
  }
  return view;
}

// Channels become r x r neighbours.
ViewOf PixelShuffle(const OpAttrs& attrs) {
  const int64_t r = attrs.Int("upscale_factor");
  if (attrs.String("data_format") == "NHWC") {
    return [r](const Dims& x, const Dims&) {
      return Transposed({x[0], x[1], x[2], x[3] / r / r, r, r}, {0, 1, 4, 2, 5, 3});
    };
  }
  return [r](const Dims& x, const Dims&) {
    return Transposed({x[0], x[1] / r / r, r, r, x[2], x[3]}, {0, 1, 4, 2, 5, 3});
  };
}

// r x r neighbours become channels.
ViewOf PixelUnshuffle(const OpAttrs& attrs) {
  const int64_t r = attrs.Int("downscale_factor");
  if (attrs.String("data_format") == "NHWC") {
    return [r](const Dims& x, const Dims&) {
      return Transposed({x[0], x[1] / r, r, x[2] / r, r, x[3]}, {0, 1, 3, 5, 2, 4});
    };
  }
  return [r](const Dims& x, const Dims&) {
    return Transposed({x[0], x[1], x[2] / r, r, x[3] / r, r}, {0, 1, 3, 5, 2, 4});
  };
}

// The channels of the groups in turn.
ViewOf ChannelShuffle(const OpAttrs& attrs) {
  const int64_t groups = attrs.Int("groups");
  if (attrs.String("data_format") == "NHWC") {
    return [groups](const Dims& x, const Dims&) {
      return Transposed({x[0] * x[1] * x[2], groups, x[3] / groups}, {0, 2, 1});
    };
  }
  return [groups](const Dims& x, const Dims&) {
    return Transposed({x[0], groups, x[1] / groups, x[2] * x[3]}, {0, 2, 1, 3});
  };
}

ViewOf ShuffleChannel(const OpAttrs& attrs) {
  const int64_t group = attrs.Int("group");
  return [group](const Dims& x, const Dims&) {
    const int64_t rest = NumElements(absl::MakeConstSpan(x).subspan(2));
    return Transposed({x[0], group, x[1] / group, rest}, {0, 2, 1, 3});
  };
}

// The diagonal `offset` above the main one of the two dimensions, last.
View Diagonal(const Dims& x, int64_t axis1, int64_t axis2, int64_t offset) {
  const size_t a = Axis(axis1, x.size()), b = Axis(axis2, x.size());
  const Dims strides = RowMajorStrides(x);
  View view;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d == a || d == b) continue;
    view.extents.push_back(x[d]);
    view.strides.push_back(strides[d]);
  }
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  view.offset = row * strides[a] + column * strides[b];
  view.extents.push_back(std::max<int64_t>(0, std::min(x[a] - row, x[b] - column)));
  view.strides.push_back(strides[a] + strides[b]);
  return view;
}

ViewOf DiagonalView(const OpAttrs& attrs) {
  return [axis1 = attrs.Int("axis1"), axis2 = attrs.Int("axis2"), offset = attrs.Int("offset")](
             const Dims& x, const Dims&) { return Diagonal(x, axis1, axis2, offset); };
}

absl::StatusOr<Kernel> Forward(const KernelSpec& spec, const char* x_slot, MakeView make_view) {
  OpKernel op(spec);
  op.Ignore({"Y"});  // of expand_as_v2
  const In x = op.in(x_slot);
  const Out out = op.out("Out");
  return op.Make(Moves{x}, [=, view = make_view(spec.attrs)](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    ReadView(view(x(ctx).dims(), out(ctx).dims()), x.elements<T>(ctx), out.elements<T>(ctx));
  });
}

// X@GRAD: each element of Out@GRAD is added to where it was read.
absl::StatusOr<Kernel> Backward(const KernelSpec& spec, const char* x_slot, MakeView make_view) {
  OpKernel op(spec);
  op.Ignore({x_slot, "Out", "XShape"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(x_slot, "@GRAD"));
  return op.Make(Floats(dout),
                 [=, view = make_view(spec.attrs)](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   T* to = dx.data<T>(ctx);
                   std::fill_n(to, dx(ctx).size(), T(0));
                   AddToView(view(dx(ctx).dims(), dout(ctx).dims()), dout.data<T>(ctx), to);
                 });
}

void AddView(const char* type, MakeView view, KernelTable* table, const char* x_slot = "X") {
  table->Add(type, [=](const KernelSpec& spec) { return Forward(spec, x_slot, view); });
  table->Add(absl::StrCat(type, "_grad"),
             [=](const KernelSpec& spec) { return Backward(spec, x_slot, view); });
}

// --- The same elements under other dims ----------------------------------------------------------

// Out = X; inference gives its dims.
absl::StatusOr<Kernel> Reshaped(const KernelSpec& spec, const char* from, const char* to) {
  OpKernel op(spec);
  op.Ignore({"X", "Out", "XShape"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto) {
    if (x(ctx).bytes() > 0) std::memcpy(out(ctx).raw(), x(ctx).raw(), x(ctx).bytes());
  });
}

void AddReshape(const char* type, KernelTable* table) {
  table->Add(type, [](const KernelSpec& spec) { return Reshaped(spec, "X", "Out"); });
  table->Add(absl::StrCat(type, "_grad"),
             [](const KernelSpec& spec) { return Reshaped(spec, "Out@GRAD", "X@GRAD"); });
}

// --- Several inputs or outputs -------------------------------------------------------------------

// The positions begin, begin + 1, ... (`size` of them) along an axis of a tensor of these dims.
View Part(const Dims& whole, int64_t axis, int64_t begin, int64_t size) {
  View view = WholeView(whole);
  const size_t a = Axis(axis, whole.size());
  view.offset = begin * view.strides[a];
  view.extents[a] = size;
  return view;
}

// Out = the parts, one after the other along the axis.
absl::StatusOr<Kernel> Concat(const KernelSpec& spec) {
  OpKernel op(spec);
  const In parts = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Moves{parts},
                 [=, axis = spec.attrs.Int("axis")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   int64_t begin = 0;
                   for (int i = 0; i < parts.count(); ++i) {
                     const Dims dims = parts(ctx, i).dims();
                     const int64_t size = dims[Axis(axis, dims.size())];
                     WriteView(Part(out(ctx).dims(), axis, begin, size), parts.elements<T>(ctx, i),
                               out.elements<T>(ctx));
                     begin += size;
                   }
                 });
}

// Parts of x of these sizes along the axis; those that nobody reads are left out.
template <typename T>
void Cut(const Tensor& x, int64_t axis, const std::vector<int64_t>& sizes, const Out& parts,
         const KernelContext& ctx) {
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); begin += sizes[i], ++i) {
    if (parts.get(ctx, static_cast<int>(i)) == nullptr) continue;
    ReadView(Part(x.dims(), axis, begin, sizes[i]), static_cast<const T*>(x.raw()),
             parts.elements<T>(ctx, static_cast<int>(i)));
  }
}

// X@GRAD = the parts of Out@GRAD that the X were joined to.
absl::StatusOr<Kernel> ConcatGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X"), dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Moves{dout},
                 [=, axis = spec.attrs.Int("axis")](const KernelContext& ctx, auto zero) {
                   std::vector<int64_t> sizes;
                   for (int i = 0; i < x.count(); ++i)
                     sizes.push_back(x(ctx, i).dims()[Axis(axis, x(ctx, i).rank())]);
                   Cut<decltype(zero)>(dout(ctx), axis, sizes, dx, ctx);
                 });
}

// Out = parts of X: as many equal ones as Out has variables, or of the sizes `sections`, of which
// one may be -1, the rest.
absl::StatusOr<Kernel> Split(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out parts = op.out("Out");
  const std::vector<int64_t> sections =
      spec.attrs.Int("num") > 0 ? std::vector<int64_t>() : spec.attrs.Ints("sections");
  return op.Make(Moves{x}, [=, axis = spec.attrs.Int("axis")](const KernelContext& ctx, auto zero) {
    const int64_t size = x(ctx).dims()[Axis(axis, x(ctx).rank())];
    std::vector<int64_t> sizes = sections;
    if (sizes.empty()) sizes.assign(parts.count(), size / parts.count());
    const auto rest = std::find(sizes.begin(), sizes.end(), -1);
    if (rest != sizes.end()) {
      *rest = 0;
      *rest = size - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    }
    Cut<decltype(zero)>(x(ctx), axis, sizes, parts, ctx);
  });
}

// The variables in turn, along a new dimension.
absl::StatusOr<Kernel> Stack(const KernelSpec& spec, const char* parts_slot, const char* to) {
  OpKernel op(spec);
  const In parts = op.in(parts_slot);
  const Out out = op.out(to);
  return op.Make(Moves{parts}, [=, axis = spec.attrs.Int("axis")](const KernelContext& ctx,
                                                                  auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < parts.count(); ++i) {
      WriteView(Part(out(ctx).dims(), axis, i, 1), parts.elements<T>(ctx, i), out.elements<T>(ctx));
    }
  });
}

absl::StatusOr<Kernel> Unstack(const KernelSpec& spec, const char* from, const char* parts_slot) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out parts = op.out(parts_slot);
  return op.Make(Moves{x}, [=, axis = spec.attrs.Int("axis")](const KernelContext& ctx, auto zero) {
    Cut<decltype(zero)>(x(ctx), axis, std::vector<int64_t>(parts.count(), 1), parts, ctx);
  });
}

// Out[i] = X[i] repeated to the dims of all; meshgrid: X[i] along dimension i.
enum class Repeats { kBroadcast, kMeshgrid };

template <Repeats how>
View RepeatedView(const Dims& x, const Dims& out, size_t i) {
  if (how == Repeats::kBroadcast) return Expand({})(x, out);
  View view{out, Dims(out.size(), 0), 0};
  view.strides[i] = 1;
  return view;
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAll(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < x.count(); ++i) {
      if (out.get(ctx, i) == nullptr) continue;
      ReadView(RepeatedView<how>(x(ctx, i).dims(), out(ctx, i).dims(), i), x.elements<T>(ctx, i),
               out.elements<T>(ctx, i));
    }
  });
}

template <Repeats how>
absl::StatusOr<Kernel> RepeatAllGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dout = op.in(how == Repeats::kBroadcast ? "Out@GRAD" : "outputs@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    for (int i = 0; i < dx.count(); ++i) {
      if (dx.get(ctx, i) == nullptr) continue;
      T* to = dx.data<T>(ctx, i);
      std::fill_n(to, dx(ctx, i).size(), T(0));
      AddToView(RepeatedView<how>(dx(ctx, i).dims(), dout(ctx, i).dims(), i), dout.data<T>(ctx, i),
                to);
    }
  });
}

// --- Parts of the output -------------------------------------------------------------------------

// Where pad puts X into Out.
View PaddedView(const Dims& x, const Dims& out, const std::vector<int64_t>& paddings) {
  View view{x, RowMajorStrides(out), 0};
  for (size_t d = 0; d < x.size(); ++d) view.offset += paddings[2 * d] * view.strides[d];
  return view;
}

absl::StatusOr<Kernel> Pad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = spec.attrs.Float("pad_value");
  return op.Make(AnyNumbers(x),
                 [=, paddings = spec.attrs.Ints("paddings")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   std::fill_n(out.data<T>(ctx), out(ctx).size(), static_cast<T>(value));
                   WriteView(PaddedView(x(ctx).dims(), out(ctx).dims(), paddings), x.data<T>(ctx),
                             out.data<T>(ctx));
                 });
}

absl::StatusOr<Kernel> PadGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout),
                 [=, paddings = spec.attrs.Ints("paddings")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   ReadView(PaddedView(dx(ctx).dims(), dout(ctx).dims(), paddings),
                            dout.data<T>(ctx), dx.data<T>(ctx));
                 });
}

// Paddle's trace takes the axes in the order in which the tensor has them.
ViewOf TracedDiagonal(const KernelSpec& spec) {
  if (!spec.paddle_cpu_quirks) return DiagonalView(spec.attrs);
  return [axis1 = spec.attrs.Int("axis1"), axis2 = spec.attrs.Int("axis2"),
          offset = spec.attrs.Int("offset")](const Dims& x, const Dims&) {
    const size_t a = Axis(axis1, x.size()), b = Axis(axis2, x.size());
    return Diagonal(x, std::min(a, b), std::max(a, b), offset);
  };
}

// Out = the sums of the diagonals.
absl::StatusOr<Kernel> Trace(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Out");
  return op.Make(Numbers(x),
                 [=, diagonal = TracedDiagonal(spec)](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = diagonal(x(ctx).dims(), {});
                   std::vector<T> elements(view.size());
                   ReadView(view, x.data<T>(ctx), elements.data());
                   const int64_t width = view.extents.back();
                   for (int64_t i = 0; i < out(ctx).size(); ++i) {
                     T sum = 0;
                     for (int64_t k = 0; k < width; ++k) {
                       sum = static_cast<T>(Wrapping(sum) + Wrapping(elements[i * width + k]));
                     }
                     out.data<T>(ctx)[i] = sum;
                   }
                 });
}

absl::StatusOr<Kernel> TraceGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"Input"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD");
  return op.Make(Floats(dout),
                 [=, diagonal = TracedDiagonal(spec)](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   const View view = diagonal(dx(ctx).dims(), {});
                   const int64_t width = view.extents.back();
                   std::vector<T> elements(view.size());
                   for (int64_t i = 0; i < view.size(); ++i)
                     elements[i] = dout.data<T>(ctx)[i / width];
                   std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
                   WriteView(view, elements.data(), dx.data<T>(ctx));
                 });
}

// A vector becomes a diagonal, amid padding_value; of a matrix the diagonal is taken.
absl::StatusOr<Kernel> Diag(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("X");
  const Out out = op.out("Out");
  const int64_t offset = spec.attrs.Int("offset");
  const double padding = spec.attrs.Float("padding_value");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    if (x(ctx).rank() == 2) {
      ReadView(Diagonal(x(ctx).dims(), 0, 1, offset), x.data<T>(ctx), out.data<T>(ctx));
      return;
    }
    std::fill_n(out.data<T>(ctx), out(ctx).size(), static_cast<T>(padding));
    WriteView(Diagonal(out(ctx).dims(), 0, 1, offset), x.data<T>(ctx), out.data<T>(ctx));
  });
}

absl::StatusOr<Kernel> DiagGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  const int64_t offset = spec.attrs.Int("offset");
  return op.Make(Floats(dout), [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    if (dx(ctx).rank() == 1) {
      ReadView(Diagonal(dout(ctx).dims(), 0, 1, offset), dout.data<T>(ctx), dx.data<T>(ctx));
      return;
    }
    std::fill_n(dx.data<T>(ctx), dx(ctx).size(), T(0));
    WriteView(Diagonal(dx(ctx).dims(), 0, 1, offset), dout.data<T>(ctx), dx.data<T>(ctx));
  });
}

// Out = matrices with the rows of Input on a diagonal, 0 elsewhere.
absl::StatusOr<Kernel> DiagEmbed(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input");
  const Out out = op.out("Out");
  const int64_t dim1 = spec.attrs.Int("dim1"), dim2 = spec.attrs.Int("dim2");
  const int64_t offset = spec.attrs.Int("offset");
  return op.Make(Numbers(x), [=](const KernelContext& ctx, auto zero) -> absl::Status {
    using T = decltype(zero);
    const Dims dims = out(ctx).dims();
    WEFT_ASSIGN_OR_RETURN(const int rows, AxisOf(dim1, dims));
    WEFT_ASSIGN_OR_RETURN(const int columns, AxisOf(dim2, dims));
    std::fill_n(out.data<T>(ctx), out(ctx).size(), T(0));
    WriteView(Diagonal(dims, rows, columns, offset), x.data<T>(ctx), out.data<T>(ctx));
    return absl::OkStatus();
  });
}

// Out = Input, but for a slice, which is ValueTensor, repeated to the slice's dims.
absl::StatusOr<Kernel> SetValue(const KernelSpec& spec) {
  OpKernel op(spec);
  const In x = op.in("Input"), value = op.in("ValueTensor");
  const Out out = op.out("Out");
  return op.Make(Moves{x}, [=, slice = StridedSlice(spec.attrs)](const KernelContext& ctx,
                                                                 auto zero) {
    using T = decltype(zero);
    const View view = slice(x(ctx).dims(), {});
    std::vector<T> values(view.size());
    ReadView(Expand({})(value(ctx).dims(), view.extents), value.elements<T>(ctx), values.data());
    std::copy_n(x.elements<T>(ctx), x(ctx).size(), out.elements<T>(ctx));
    WriteView(view, values.data(), out.elements<T>(ctx));
  });
}

absl::StatusOr<Kernel> SetValueGrad(const KernelSpec& spec) {
  OpKernel op(spec);
  op.Ignore({"ValueTensor"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("Input@GRAD"), dvalue = op.out("ValueTensor@GRAD");
  return op.Make(
      Floats(dout), [=, slice = StridedSlice(spec.attrs)](const KernelContext& ctx, auto zero) {
        using T = decltype(zero);
        const View view = slice(dout(ctx).dims(), {});
        std::vector<T> values(view.size());
        ReadView(view, dout.data<T>(ctx), values.data());
        if (Tensor* gradient = dvalue.get(ctx)) {
          std::fill_n(gradient->data<T>(), gradient->size(), T(0));
          AddToView(Expand({})(gradient->dims(), view.extents), values.data(), gradient->data<T>());
        }
        if (Tensor* gradient = dx.get(ctx)) {
          std::copy_n(dout.data<T>(ctx), dout(ctx).size(), gradient->data<T>());
          std::fill(values.begin(), values.end(), T(0));
          WriteView(view, values.data(), gradient->data<T>());
        }
      });
}

// Moves the elements around along dimensions: forwards by `shifts`, or backwards.
void Roll(const Dims& dims, const std::vector<int64_t>& axes, const std::vector<int64_t>& shifts,
          bool backwards, const std::function<void(int64_t from, int64_t to)>& move) {
  Dims shift(dims.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t axis = Axis(axes[i], dims.size());
    const int64_t n = std::max<int64_t>(dims[axis], 1);
    shift[axis] = ((shift[axis] + (backwards ? -shifts[i] : shifts[i])) % n + n) % n;
  }
  const Dims strides = RowMajorStrides(dims);
  const int64_t size = NumElements(dims);
  for (int64_t from = 0; from < size; ++from) {
    int64_t to = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      to += (from / strides[d] % dims[d] + shift[d]) % dims[d] * strides[d];
    }
    move(from, to);
  }
}

absl::StatusOr<Kernel> RollKernel(const KernelSpec& spec, const char* from, const char* to,
                                  bool backwards) {
  OpKernel op(spec);
  op.Ignore({"X"});
  const In x = op.in(from);
  const Out out = op.out(to);
  return op.Make(Moves{x}, [=, axes = spec.attrs.Ints("axis"), shifts = spec.attrs.Ints("shifts")](
                               const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const T* source = x.elements<T>(ctx);
    T* target = out.elements<T>(ctx);
    // Without axes, the tensor as one row.
    const bool is_flat = axes.empty();
    Roll(is_flat ? Dims{x(ctx).size()} : x(ctx).dims(), is_flat ? std::vector<int64_t>{0} : axes,
         shifts, backwards, [&](int64_t i, int64_t j) { target[j] = source[i]; });
  });
}

// Of seg_num frames in a row, some channels move one frame forwards, as many one backwards.
absl::StatusOr<Kernel> TemporalShift(const KernelSpec& spec, const char* from, const char* to,
                                     int direction) {
  OpKernel op(spec);
  const In x = op.in(from);
  const Out out = op.out(to);
  const int64_t frames = spec.attrs.Int("seg_num");
  const double ratio = spec.attrs.Float("shift_ratio");
  const bool channels_last = spec.attrs.String("data_format") == "NHWC";
  return op.Make(Moves{x}, [=](const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Dims dims = x(ctx).dims();
    const int64_t channels = channels_last ? dims[3] : dims[1];
    const int64_t image = dims[1] * dims[2] * dims[3];
    const int64_t inner = channels_last ? 1 : dims[2] * dims[3];
    const auto first = static_cast<int64_t>(channels * ratio);
    const auto second = static_cast<int64_t>(channels * 2 * ratio);
    for (int64_t i = 0; i < x(ctx).size(); ++i) {
      const int64_t frame = i / image % frames, channel = i / inner % channels;
      const int64_t step = (channel < first ? -1 : channel < second ? 1 : 0) * direction;
      const bool is_outside = frame + step < 0 || frame + step >= frames;
      out.elements<T>(ctx)[i] = is_outside ? T(0) : x.elements<T>(ctx)[i + step * image];
    }
  });
}

}  // namespace

void AddViewKernels(KernelTable* table) {
  AddView("channel_shuffle", ChannelShuffle, table);
  AddView("crop_tensor", Crop, table);
  AddView("expand", Tile, table);
  AddView("expand_as_v2", Expand, table);
  AddView("expand_v2", Expand, table);
  AddView("pixel_shuffle", PixelShuffle, table);
  AddView("pixel_unshuffle", PixelUnshuffle, table);
  AddView("repeat_interleave", RepeatInterleave, table);
  AddView("shuffle_channel", ShuffleChannel, table);
  AddView("slice", StridedSlice, table, "Input");
  AddView("strided_slice", StridedSlice, table, "Input");
  AddView("tile", Tile, table);
  AddView("transpose", Transpose, table);
  AddView("transpose2", Transpose, table);
  for (const char* type : {"flip", "reverse"}) {  // their own gradients
    table->Add(type, [](const KernelSpec& spec) { return Forward(spec, "X", Flip); });
  }
  for (const char* type : {"flatten", "flatten2", "flatten_contiguous_range", "reshape", "reshape2",
                           "squeeze", "squeeze2", "unsqueeze", "unsqueeze2"}) {
    AddReshape(type, table);
  }

  table->Add("concat", Concat);
  table->Add("concat_grad", ConcatGrad);
  table->Add("split", Split);
  table->Add("stack", [](const KernelSpec& spec) { return Stack(spec, "X", "Y"); });
  table->Add("stack_grad",
             [](const KernelSpec& spec) { return Unstack(spec, "Y@GRAD", "X@GRAD"); });
  table->Add("unstack", [](const KernelSpec& spec) { return Unstack(spec, "X", "Y"); });
  table->Add("unstack_grad",
             [](const KernelSpec& spec) { return Stack(spec, "Y@GRAD", "X@GRAD"); });
  table->Add("unbind", [](const KernelSpec& spec) { return Unstack(spec, "X", "Out"); });
  table->Add("broadcast_tensors", RepeatAll<Repeats::kBroadcast>);
  table->Add("broadcast_tensors_grad", RepeatAllGrad<Repeats::kBroadcast>);
  table->Add("meshgrid", RepeatAll<Repeats::kMeshgrid>);
  table->Add("meshgrid_grad", RepeatAllGrad<Repeats::kMeshgrid>);

  table->Add("diag_v2", Diag);
  table->Add("diag_v2_grad", DiagGrad);
  table->Add("diag_embed", DiagEmbed);
  table->Add("pad", Pad);
  table->Add("pad_grad", PadGrad);
  table->Add("roll", [](const KernelSpec& spec) { return RollKernel(spec, "X", "Out", false); });
  table->Add("roll_grad", [](const KernelSpec& spec) {
    return RollKernel(spec, "Out@GRAD", "X@GRAD", /*backwards=*/true);
  });
  table->Add("set_value", SetValue);
  table->Add("set_value_grad", SetValueGrad);
  table->Add("temporal_shift",
             [](const KernelSpec& spec) { return TemporalShift(spec, "X", "Out", 1); });
  table->Add("temporal_shift_grad",
             [](const KernelSpec& spec) { return TemporalShift(spec, "Out@GRAD", "X@GRAD", -1); });
  AddView("diagonal", DiagonalView, table, "Input");
  table->Add("trace", Trace);
  table->Add("trace_grad", TraceGrad);
}

}  // namespace weft
