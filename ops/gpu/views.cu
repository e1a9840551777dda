// Ops that read a strided view of a tensor (ops/cpu/views.h), and parts of tensors along a
// dimension.
#include <cstdint>
#include <vector>

#include "absl/algorithm/container.h"
#include "base/status_macros.h"
#include "ops/cpu/indices.h"
#include "ops/cpu/views.h"
#include "ops/gpu/families.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/loops.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// a: the strides in the tensor, b: in the packed view.
LoopNest NestOf(const View& view) {
  const View simple = Simplify(view);
  return {simple.extents, simple.strides, RowMajorStrides(simple.extents)};
}

template <typename T>
struct ReadElement {
  Loops loops;
  const T* tensor;
  T* to;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t at, packed;
    loops.At(i, &at, &packed);
    to[packed] = tensor[at];
  }
};

template <typename T>
struct WriteElement {
  Loops loops;
  const T* from;
  T* tensor;
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t at, packed;
    loops.At(i, &at, &packed);
    tensor[at] = from[packed];
  }
};

// to = the elements of the view, row-major.
template <typename T>
absl::Status Read(const KernelContext& ctx, const View& view, const T* tensor, T* to) {
  WEFT_ASSIGN_OR_RETURN(const Loops loops, Loops::Make(NestOf(view)));
  return ForEach(ctx, view.size(), ReadElement<T>{loops, tensor + view.offset, to});
}

// The elements of the view = from. No element is repeated.
template <typename T>
absl::Status Write(const KernelContext& ctx, const View& view, const T* from, T* tensor) {
  WEFT_ASSIGN_OR_RETURN(const Loops loops, Loops::Make(NestOf(view)));
  return ForEach(ctx, view.size(), WriteElement<T>{loops, from, tensor + view.offset});
}

template <typename T>
struct SumRepeats {
  Loops kept, repeated;
  int64_t count;
  const T* from;
  T* tensor;

  WEFT_DEVICE double At(int64_t packed, int64_t k) const {
    int64_t unused, offset;
    repeated.At(k, &unused, &offset);
    return from[packed + offset];
  }
  // A thread sums the repeats of an element.
  WEFT_DEVICE void operator()(int64_t i) const {
    int64_t at, packed;
    kept.At(i, &at, &packed);
    double sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += At(packed, k);
    tensor[at] = static_cast<T>(sum);
  }
  // A block does.
  WEFT_DEVICE void operator()(int64_t i, const gpu::Block& block) const {
    int64_t at, packed;
    kept.At(i, &at, &packed);
    const double sum = block.Sum<double>(count, [&](int64_t k) { return At(packed, k); });
    block.Once([&] { tensor[at] = static_cast<T>(sum); });
  }
};

// The elements of the view = the sums of what was read from them: view.strides are 0 where elements
// are repeated.
template <typename T>
absl::Status WriteSums(const KernelContext& ctx, const View& view, const T* from, T* tensor) {
  const LoopNest nest = NestOf(view);
  LoopNest kept, repeated;
  for (size_t d = 0; d < nest.extents.size(); ++d) {
    LoopNest& to = nest.a_strides[d] == 0 ? repeated : kept;
    to.extents.push_back(nest.extents[d]);
    to.a_strides.push_back(nest.a_strides[d]);
    to.b_strides.push_back(nest.b_strides[d]);
  }
  WEFT_ASSIGN_OR_RETURN(const Loops of_kept, Loops::Make(kept));
  WEFT_ASSIGN_OR_RETURN(const Loops of_repeated, Loops::Make(repeated));
  const int64_t size = NumElements(kept.extents), count = NumElements(repeated.extents);
  const SumRepeats<T> sum{of_kept, of_repeated, count, from, tensor + view.offset};
  return count < 256 ? ForEach(ctx, size, sum) : ForEachRow(ctx, size, count, sum);
}

// Out = the view of X.
absl::StatusOr<Kernel> Forward(OpKernel op, const char* x_slot, MakeView make_view) {
  if (op.spec().schema->type() == "expand_as_v2") op.Ignore({"Y"});
  const In x = op.in(x_slot);
  const Out out = op.out("Out");
  return op.Make(RawElements{x},
                 [=, view = make_view(op.attrs())](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   return Read(ctx, view(x(ctx).dims(), out(ctx).dims()), x.elements<T>(ctx),
                               out.elements<T>(ctx));
                 });
}

// X@GRAD: each element of Out@GRAD is added to the element that was read.
absl::StatusOr<Kernel> Backward(OpKernel op, const char* x_slot, MakeView make_view) {
  op.Ignore({x_slot, "Out", "XShape"});
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out(absl::StrCat(x_slot, "@GRAD"));
  return op.Make(
      Floats(dout),
      [=, view = make_view(op.attrs())](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const View read = view(dx(ctx).dims(), dout(ctx).dims());
        if (!IsPermutation(read, dx(ctx).size())) {
          WEFT_RETURN_IF_ERROR(Clear(ctx, dx(ctx).raw(), dx(ctx).bytes()));
        }
        return WriteSums(ctx, read, dout.data<T>(ctx), dx.data<T>(ctx));
      });
}

// --- pad -----------------------------------------------------------------------------------------

absl::StatusOr<Kernel> Pad(OpKernel op) {
  const In x = op.in("X");
  const Out out = op.out("Out");
  const double value = op.attrs().Float("pad_value");
  return op.Make(AllTypesButHalf(x),
                 [=, paddings = op.attrs().Ints("paddings")](const KernelContext& ctx,
                                                             auto zero) -> absl::Status {
                   using T = decltype(zero);
                   T* to = out.data<T>(ctx);
                   WEFT_RETURN_IF_ERROR(
                       ForEach(ctx, out(ctx).size(), FillElement<T>{static_cast<T>(value), to}));
                   return Write(ctx, PaddedView(x(ctx).dims(), out(ctx).dims(), paddings),
                                x.data<T>(ctx), to);
                 });
}

absl::StatusOr<Kernel> PadGrad(OpKernel op) {
  const In dout = op.in("Out@GRAD");
  const Out dx = op.out("X@GRAD");
  return op.Make(Floats(dout),
                 [=, paddings = op.attrs().Ints("paddings")](const KernelContext& ctx, auto zero) {
                   using T = decltype(zero);
                   return Read(ctx, PaddedView(dx(ctx).dims(), dout(ctx).dims(), paddings),
                               dout.data<T>(ctx), dx.data<T>(ctx));
                 });
}

// --- Parts along a dimension ---------------------------------------------------------------------

// The positions begin, begin + 1, ... (`size` of them) along an axis of a tensor of these dims.
View Part(const Dims& whole, int64_t axis, int64_t begin, int64_t size) {
  View view = WholeView(whole);
  const size_t a = NormalizedAxis(axis, whole.size());
  view.offset = begin * view.strides[a];
  view.extents[a] = size;
  return view;
}

// Out = the parts, one after the other along the axis. `size_of`(dims): of a part.
template <typename SizeOf>
absl::StatusOr<Kernel> Join(OpKernel op, const char* from, const char* to, SizeOf size_of) {
  const In parts = op.in(from);
  const Out out = op.out(to);
  return op.Make(
      RawElements{parts},
      [=, axis = op.attrs().Int("axis")](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        int64_t begin = 0;
        for (int k = 0; k < parts.count(); ++k) {
          const int64_t size = size_of(parts(ctx, k).dims(), axis);
          WEFT_RETURN_IF_ERROR(Write(ctx, Part(out(ctx).dims(), axis, begin, size),
                                     parts.elements<T>(ctx, k), out.elements<T>(ctx)));
          begin += size;
        }
        return absl::OkStatus();
      });
}

int64_t SizeAlong(const Dims& dims, int64_t axis) {
  return dims[NormalizedAxis(axis, dims.size())];
}
int64_t One(const Dims&, int64_t) { return 1; }

// Parts of `from`, one after the other along the axis; unread parts are skipped.
// `sizes_of`(ctx, size along the axis): of the parts.
template <typename SizesOf>
absl::StatusOr<Kernel> Cut(OpKernel op, const char* from, const char* to, SizesOf sizes_of) {
  const In x = op.in(from);
  const Out parts = op.out(to);
  return op.Make(
      RawElements{x},
      [=, axis = op.attrs().Int("axis")](const KernelContext& ctx, auto zero) -> absl::Status {
        using T = decltype(zero);
        const Dims& dims = x(ctx).dims();
        const std::vector<int64_t> sizes = sizes_of(ctx, axis, SizeAlong(dims, axis));
        int64_t begin = 0;
        for (int k = 0; k < static_cast<int>(sizes.size()); begin += sizes[k], ++k) {
          if (parts.get(ctx, k) == nullptr) continue;
          WEFT_RETURN_IF_ERROR(Read(ctx, Part(dims, axis, begin, sizes[k]), x.elements<T>(ctx),
                                    parts.elements<T>(ctx, k)));
        }
        return absl::OkStatus();
      });
}

absl::StatusOr<Kernel> Concat(const KernelSpec& spec) { return Join(spec, "X", "Out", SizeAlong); }

absl::StatusOr<Kernel> ConcatGrad(OpKernel op) {
  const InTypes x = op.in_types("X");
  return Cut(op, "Out@GRAD", "X@GRAD", [=](const KernelContext& ctx, int64_t axis, int64_t) {
    std::vector<int64_t> sizes;
    for (int k = 0; k < x.count(); ++k) sizes.push_back(SizeAlong(x.dims(ctx, k), axis));
    return sizes;
  });
}

// Equal parts, or of the sizes `sections`, of which one may be -1, the rest.
absl::StatusOr<Kernel> Split(OpKernel op) {
  const int count = op.out("Out").count();
  const std::vector<int64_t> sections =
      op.attrs().Int("num") > 0 ? std::vector<int64_t>() : op.attrs().Ints("sections");
  return Cut(op, "X", "Out", [=](const KernelContext&, int64_t, int64_t size) {
    std::vector<int64_t> sizes = sections;
    if (sizes.empty()) sizes.assign(count, size / count);
    const auto rest = absl::c_find(sizes, -1);
    if (rest != sizes.end()) {
      *rest = 0;
      *rest = size - absl::c_accumulate(sizes, int64_t{0});
    }
    return sizes;
  });
}

absl::StatusOr<Kernel> Unstack(OpKernel op, const char* from, const char* to) {
  op.Ignore({"X"});
  return Cut(op, from, to, [](const KernelContext&, int64_t, int64_t size) {
    return std::vector<int64_t>(size, 1);
  });
}

}  // namespace

void AddGpuViewKernels(KernelTable* table) {
  for (const ViewOp& op : ViewOps()) {
    table->Add(
        op.type, [op](const KernelSpec& spec) { return Forward(spec, op.x_slot, op.make_view); },
        [op](const KernelSpec& spec) { return Backward(spec, op.x_slot, op.make_view); });
  }
  for (const char* type : {"flip", "reverse"}) {  // their own gradients
    table->Add(type, [](const KernelSpec& spec) { return Forward(spec, "X", FlippedView); });
  }
  table->Add("concat", Concat, ConcatGrad);
  table->Add("pad", Pad, PadGrad);
  table->Add("split", Split);
  table->Add(
      "stack", [](const KernelSpec& spec) { return Join(spec, "X", "Y", One); },
      [](const KernelSpec& spec) { return Unstack(spec, "Y@GRAD", "X@GRAD"); });
  table->Add(
      "unstack", [](const KernelSpec& spec) { return Unstack(spec, "X", "Y"); },
      [](const KernelSpec& spec) { return Join(spec, "Y@GRAD", "X@GRAD", One); });
  table->Add("unbind", [](const KernelSpec& spec) { return Unstack(spec, "X", "Out"); });
}

}  // namespace weft
