// Convolution of images of two or three dimensions, and its gradients (ops/cpu/conv_shape.h).
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "ops/cpu/conv_shape.h"
#include "ops/cpu/dnnl_primitive.h"
#include "ops/cpu/families.h"
#include "ops/cpu/image.h"
#include "ops/cpu/post_ops.h"
#include "ops/half_arrays.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

using dnnl::memory;

enum class Result { kDestination, kSource, kFilter };

// --- oneDNN --------------------------------------------------------------------------------------

memory::desc PlainFilter(const ConvShape& shape, memory::data_type type) {
  using Tag = memory::format_tag;
  memory::dims dims(shape.filter.begin(), shape.filter.end());
  if (shape.groups > 1) {
    dims[0] /= shape.groups;
    dims.insert(dims.begin(), shape.groups);
  }
  constexpr std::array<Tag, 3> kTags = {Tag::abcd, Tag::abcde, Tag::abcdef};
  return memory::desc(dims, type, kTags[dims.size() - 4]);
}

// The same tensor, of elements of `type`, in the layout that the primitive prefers.
memory::desc AnyLayout(const memory::desc& desc, memory::data_type type) {
  return memory::desc(desc.dims(), type, memory::format_tag::any);
}

// Whether oneDNN supports the shape: windows must not skip more than a stride at the end of the
// source.
bool IsForDnnl(const ConvShape& shape) {
  for (size_t i = 0; i < shape.space(); ++i) {
    if (shape.Overhang(i) + shape.windows[i].stride <= 0) return false;
  }
  return true;
}

// Images as the caller has them, or in the layout that the primitive prefers, to and from which
// they are copied.
enum class ImageLayout { kAsGiven, kAny };

// The elements of the caller's tensors, and those that the primitive computes with, to and from
// which they are converted. Images as given have one type.
struct ConvTypes {
  memory::data_type given, computed;
};

// Describes the primitives that compute `result`. The filter is in the layout that they prefer.
class ConvDescription {
 public:
  // `post_ops`: of the destination, if that is the result.
  ConvDescription(const ConvShape& shape, Result result, ImageLayout layout, ConvTypes types,
                  const PostOps& post_ops)
      : result_(result),
        source_(DnnlImage(shape.source, shape.channels_last, types.given)),
        filter_(PlainFilter(shape, types.given)),
        destination_(DnnlImage(shape.destination, shape.channels_last, types.given)) {
    memory::dims strides, dilations, begin, end;
    for (size_t i = 0; i < shape.space(); ++i) {
      strides.push_back(shape.windows[i].stride);
      dilations.push_back(shape.windows[i].dilation - 1);
      begin.push_back(shape.windows[i].pad_begin);
      end.push_back(std::max<int64_t>(shape.Overhang(i), 0));
    }
    const bool any = layout == ImageLayout::kAny;
    // 8 channels are one block of the layout in blocks of 8, in which oneDNN computes gradients
    // 1.5 times as fast.
    if (shape.channels_last && shape.source[1] == 8 && shape.destination[1] == 8 &&
        types.given == memory::data_type::f32) {
      source_ = DnnlImageInBlocks(shape.source);
      destination_ = DnnlImageInBlocks(shape.destination);
    }
    const memory::desc source = any ? AnyLayout(source_, types.computed) : source_;
    const memory::desc destination = any ? AnyLayout(destination_, types.computed) : destination_;
    const memory::desc filter = AnyLayout(filter_, types.computed);
    constexpr dnnl::algorithm kDirect = dnnl::algorithm::convolution_direct;
    const dnnl::primitive_attr attributes = DnnlAttributes();
    constexpr dnnl::prop_kind kKind = dnnl::prop_kind::forward_training;
    dnnl::primitive_attr with_post_ops = DnnlAttributes();
    const memory::desc bias({shape.destination[1]}, types.given, memory::format_tag::a);
    post_ops.AddTo(destination_, bias, /*takes_bias=*/true, &with_post_ops, &operands_);
    using Forward = dnnl::convolution_forward::desc;
    forward_ = {post_ops.begins_with_bias() ? Forward(kKind, kDirect, source, filter, bias,
                                                      destination, strides, dilations, begin, end)
                                            : Forward(kKind, kDirect, source, filter, destination,
                                                      strides, dilations, begin, end),
                with_post_ops, DnnlCpuEngine()};
    if (result == Result::kSource) {
      of_source_ = {{kDirect, source, filter, destination, strides, dilations, begin, end},
                    attributes,
                    DnnlCpuEngine(),
                    forward_};
    }
    if (result == Result::kFilter) {
      of_filter_ = {{kDirect, source, filter, destination, strides, dilations, begin, end},
                    attributes,
                    DnnlCpuEngine(),
                    forward_};
    }
  }

  // Whether oneDNN generates code for the machine. Its reference implementation is a thousand times
  // as slow.
  bool IsFast() const { return Name().find("ref") == absl::string_view::npos; }
  // Whether that code is a convolution, not a product of matrices (gemm), which adds the wrong
  // elements of a tensor if channels are last.
  bool AddsTensors() const {
    return absl::StartsWith(Name(), "jit") || absl::StartsWith(Name(), "brgconv");
  }

  DnnlPrimitive Make() const {
    if (result_ == Result::kDestination) {
      std::vector<DnnlPrimitive::Argument> inputs = {
          {DNNL_ARG_SRC, source_, forward_.src_desc()},
          {DNNL_ARG_WEIGHTS, filter_, forward_.weights_desc()}};
      inputs.insert(inputs.end(), operands_.begin(), operands_.end());
      return DnnlPrimitive(dnnl::convolution_forward(forward_), forward_.scratchpad_desc(), inputs,
                           {{DNNL_ARG_DST, destination_, forward_.dst_desc()}});
    }
    if (result_ == Result::kSource) {
      return DnnlPrimitive(dnnl::convolution_backward_data(of_source_),
                           of_source_.scratchpad_desc(),
                           {{DNNL_ARG_DIFF_DST, destination_, of_source_.diff_dst_desc()},
                            {DNNL_ARG_WEIGHTS, filter_, of_source_.weights_desc()}},
                           {{DNNL_ARG_DIFF_SRC, source_, of_source_.diff_src_desc()}});
    }
    return DnnlPrimitive(dnnl::convolution_backward_weights(of_filter_),
                         of_filter_.scratchpad_desc(),
                         {{DNNL_ARG_SRC, source_, of_filter_.src_desc()},
                          {DNNL_ARG_DIFF_DST, destination_, of_filter_.diff_dst_desc()}},
                         {{DNNL_ARG_DIFF_WEIGHTS, filter_, of_filter_.diff_weights_desc()}});
  }

 private:
  absl::string_view Name() const {
    return result_ == Result::kDestination ? forward_.impl_info_str()
           : result_ == Result::kSource    ? of_source_.impl_info_str()
                                           : of_filter_.impl_info_str();
  }

  Result result_;
  memory::desc source_, filter_, destination_;
  std::vector<DnnlPrimitive::Argument> operands_;
  dnnl::convolution_forward::primitive_desc forward_;
  dnnl::convolution_backward_data::primitive_desc of_source_;
  dnnl::convolution_backward_weights::primitive_desc of_filter_;
};

// Generated code for channels that are last is about as fast as for the layout that oneDNN prefers,
// and needs no copies. Groups were not measured, and keep that layout. `takes_post_ops`: whether
// the primitive carries them out.
//
// Where oneDNN generates no code for bf16, it computes in fp32.
DnnlPrimitive MakePrimitive(const ConvShape& shape, Result result, memory::data_type type,
                            const PostOps& post_ops, bool* takes_post_ops) {
  const bool adds = post_ops.adds_tensor();
  *takes_post_ops = true;
  if (shape.channels_last && shape.groups == 1) {
    try {
      const ConvDescription as_given(shape, result, ImageLayout::kAsGiven, {type, type}, post_ops);
      if (as_given.IsFast() && (!adds || as_given.AddsTensors())) return as_given.Make();
    } catch (const dnnl::error&) {
      // There is no such primitive.
    }
  }
  if (!adds && type == memory::data_type::bf16) {
    try {
      const ConvDescription halves(shape, result, ImageLayout::kAny, {type, type}, post_ops);
      if (halves.IsFast()) return halves.Make();
    } catch (const dnnl::error&) {
      // There is no such primitive.
    }
  }
  if (!adds && (type == memory::data_type::f32 || post_ops.empty())) {
    const ConvTypes types = {type, memory::data_type::f32};
    return ConvDescription(shape, result, ImageLayout::kAny, types, post_ops).Make();
  }
  DnnlPrimitive without = MakePrimitive(shape, result, type, PostOps(), takes_post_ops);
  *takes_post_ops = false;
  return without;
}

// --- A plain loop, for double precision and shapes that oneDNN does not have ---------------------

// Calls visit(i, j, k) for all products in the sums: of element i of the source, j of the filter, k
// of the destination.
template <typename Visit>
void ForEachProduct(const ConvShape& shape, Visit visit) {
  std::array<int64_t, 3> source, filter, destination;
  std::array<formulas::FilterWindow, 3> windows;
  source.fill(1);
  filter.fill(1);
  destination.fill(1);
  const size_t first = 3 - shape.space();
  for (size_t i = 0; i < shape.space(); ++i) {
    source[first + i] = shape.source[2 + i];
    filter[first + i] = shape.filter[2 + i];
    destination[first + i] = shape.destination[2 + i];
    windows[first + i] = shape.FilterWindowAt(i);
  }
  const auto s = ImageSteps(shape.source, shape.channels_last);
  const auto f = ImageSteps(shape.filter, /*channels_last=*/false);
  const auto d = ImageSteps(shape.destination, shape.channels_last);
  const int64_t channels = shape.filter[1];
  const int64_t per_group = shape.destination[1] / shape.groups;
  // The source index of each position along dimension i of a window; visits those inside the
  // source.
  const auto along = [&](int i, int64_t i_source, int64_t i_filter, int64_t i_destination,
                         auto next) {
    for (int64_t at = 0; at < destination[i]; ++at) {
      for (int64_t k = 0; k < filter[i]; ++k) {
        const int64_t place = windows[i].SourceOf(at, k);
        if (place < 0 || place >= source[i]) continue;
        next(i_source + place * s[2 + i], i_filter + k * f[2 + i], i_destination + at * d[2 + i]);
      }
    }
  };
  for (int64_t n = 0; n < shape.source[0]; ++n) {
    for (int64_t o = 0; o < shape.destination[1]; ++o) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t source_channel = o / per_group * channels + c;
        along(0, n * s[0] + source_channel * s[1], o * f[0] + c * f[1], n * d[0] + o * d[1],
              [&](int64_t i, int64_t j, int64_t k) {
                along(1, i, j, k,
                      [&](int64_t i2, int64_t j2, int64_t k2) { along(2, i2, j2, k2, visit); });
              });
      }
    }
  }
}

// Whether oneDNN has elements of type T.
template <typename T>
constexpr bool kIsDnnlType = std::is_same_v<T, float> || std::is_same_v<T, BFloat16>;

// --- Kernels -------------------------------------------------------------------------------------

// Computes one of the three from the two others, which are given in the order of ConvShape.
class Convolution {
 public:
  explicit Convolution(Result result) : result_(result) {}

  // Makes the primitive, before the first call of Run.
  template <typename T>
  void Prepare(const ConvShape& shape, const PostOps& post_ops = {}) {
    if constexpr (kIsDnnlType<T>) {
      if (!IsForDnnl(shape) || shape.IsEmpty()) return;
      try {
        PrimitiveFor(shape, post_ops, DnnlType<T>());
      } catch (const dnnl::error&) {
        // Run says so.
      }
    }
  }

  template <typename T>
  absl::Status Run(const ConvShape& shape, const T* a, const T* b, Tensor* to) {
    if constexpr (kIsDnnlType<T>) {
      if (IsForDnnl(shape) && !shape.IsEmpty()) {
        return RunDnnl(shape, {}, {a, b}, to->data<T>(), DnnlType<T>());
      }
    }
    RunLoop(shape, a, b, to);
    return absl::OkStatus();
  }

  static absl::StatusOr<PostOps> Bind(const KernelContext& ctx, const std::vector<PostOp>& post_ops,
                                      const ConvShape& shape, const Tensor& to) {
    const int64_t inner =
        shape.channels_last ? 1 : NumElements(absl::MakeSpan(shape.destination).subspan(2));
    return PostOps::Bind(post_ops, ctx, to, {shape.destination[1], inner});
  }

  // The destination, with post-ops.
  template <typename T>
  absl::Status Run(const KernelContext& ctx, const std::vector<PostOp>& post_ops,
                   const ConvShape& shape, const T* a, const T* b, Tensor* to) {
    WEFT_ASSIGN_OR_RETURN(const PostOps bound, Bind(ctx, post_ops, shape, *to));
    if constexpr (kIsDnnlType<T>) {
      if (IsForDnnl(shape) && !shape.IsEmpty()) {
        PostOps::Operands inputs = {a, b};
        bound.AddOperands(ctx, &inputs);
        WEFT_RETURN_IF_ERROR(RunDnnl(shape, bound, inputs, to->data<T>(), DnnlType<T>()));
        if (!takes_post_ops_) bound.Apply<T>(ctx, to);
        return absl::OkStatus();
      }
    }
    RunLoop(shape, a, b, to);
    bound.Apply<T>(ctx, to);
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static memory::data_type DnnlType() {
    return std::is_same_v<T, BFloat16> ? memory::data_type::bf16 : memory::data_type::f32;
  }

  template <typename T, typename Sum>
  void AddProducts(const ConvShape& shape, const T* a, const T* b, Sum* sums) const {
    if (shape.IsEmpty()) return;
    ForEachProduct(shape, [&](int64_t i, int64_t j, int64_t k) {
      if (result_ == Result::kDestination) sums[k] += a[i] * b[j];
      if (result_ == Result::kSource) sums[i] += a[j] * b[k];
      if (result_ == Result::kFilter) sums[j] += a[i] * b[k];
    });
  }

  template <typename T>
  void RunLoop(const ConvShape& shape, const T* a, const T* b, Tensor* to) const {
    if constexpr (std::is_same_v<T, BFloat16>) {
      std::vector<float> sums(to->size());
      AddProducts(shape, a, b, sums.data());
      ConvertArray(sums.data(), to->data<T>(), to->size());
    } else {
      std::fill_n(to->data<T>(), to->size(), T(0));
      AddProducts(shape, a, b, to->data<T>());
    }
  }

  absl::Status RunDnnl(const ConvShape& shape, const PostOps& post_ops, PostOps::Operands inputs,
                       void* out, memory::data_type type) {
    // The gradient of the source reads the gradient of the destination first.
    if (result_ == Result::kSource) std::swap(inputs[0], inputs[1]);
    try {
      DnnlPrimitive& primitive = PrimitiveFor(shape, post_ops, type);
      // Operands of post-ops come last.
      const size_t count = takes_post_ops_ ? inputs.size() : 2;
      primitive.Run(absl::MakeConstSpan(inputs).first(count), {out});
    } catch (const dnnl::error& error) {
      return absl::UnimplementedError(absl::StrCat("no kernel in oneDNN: ", error.what()));
    }
    return absl::OkStatus();
  }

  DnnlPrimitive& PrimitiveFor(const ConvShape& shape, const PostOps& post_ops,
                              memory::data_type type) {
    return of_shape_({shape.source, shape.filter, shape.destination, type}, [&](const auto&) {
      return MakePrimitive(shape, result_, type, post_ops, &takes_post_ops_);
    });
  }

  Result result_;
  DnnlOfShape<std::tuple<Dims, Dims, Dims, memory::data_type>> of_shape_;
  bool takes_post_ops_ = true;  // the primitive of that shape
};

absl::StatusOr<Kernel> Conv(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter");
  const Out output = op.out("Output");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  const bool transposed = kind == ConvKind::kTransposed;
  const Result result = transposed ? Result::kSource : Result::kDestination;
  // MakePrimitive adds images where it leaves channels last.
  const auto adds_image = [](const PostOp& post_op) { return post_op.kind == PostOpKind::kAdd; };
  const bool may_add = attrs.channels_last && attrs.groups == 1;
  const bool takes_post_ops =
      !transposed && (may_add || absl::c_none_of(op.spec().post_ops, adds_image));
  const std::vector<PostOp> post_ops = takes_post_ops ? op.TakePostOps() : std::vector<PostOp>();
  if (HasBFloat16Products()) op.TakesBFloat16({input, filter});
  return op.Make(FloatsAndBFloat16(input), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    Convolution made(result);
    const ConvShape of_types = attrs.Shape(input(types), filter(types), output(types));
    const auto bound = Convolution::Bind(types, post_ops, of_types, output(types));
    if (bound.ok()) made.Prepare<T>(of_types, *bound);
    return [=, convolution = made](const KernelContext& ctx) mutable {
      const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), output(ctx));
      const T *image = input.data<T>(ctx), *factors = filter.data<T>(ctx);
      return transposed ? convolution.Run(shape, factors, image, &output(ctx))
                        : convolution.Run(ctx, post_ops, shape, image, factors, &output(ctx));
    };
  });
}

absl::StatusOr<Kernel> ConvGrad(OpKernel op, ConvKind kind, size_t space) {
  const In input = op.in("Input"), filter = op.in("Filter"), doutput = op.in("Output@GRAD");
  const Out dinput = op.out("Input@GRAD"), dfilter = op.out("Filter@GRAD");
  WEFT_ASSIGN_OR_RETURN(const ConvAttrs attrs, ConvAttrs::Read(op.attrs(), kind, space));
  const bool transposed = kind == ConvKind::kTransposed;
  if (HasBFloat16Products()) op.TakesBFloat16({input, filter, doutput});
  return op.Make(FloatsAndBFloat16(input), [=](const KernelContext& types, auto zero) {
    using T = decltype(zero);
    Convolution for_input(transposed ? Result::kDestination : Result::kSource);
    Convolution for_filter(Result::kFilter);
    const ConvShape of_types = attrs.Shape(input(types), filter(types), doutput(types));
    if (dinput.get(types) != nullptr) for_input.Prepare<T>(of_types);
    if (dfilter.get(types) != nullptr) for_filter.Prepare<T>(of_types);
    return [=, of_input = for_input,
            of_filter = for_filter](const KernelContext& ctx) mutable -> absl::Status {
      const ConvShape shape = attrs.Shape(input(ctx), filter(ctx), doutput(ctx));
      const T *x = input.data<T>(ctx), *w = filter.data<T>(ctx), *dy = doutput.data<T>(ctx);
      const T *source = transposed ? dy : x, *destination = transposed ? x : dy;
      if (Tensor* to = dinput.get(ctx)) {
        WEFT_RETURN_IF_ERROR(transposed ? of_input.Run(shape, source, w, to)
                                        : of_input.Run(shape, w, destination, to));
      }
      Tensor* const to = dfilter.get(ctx);
      return to == nullptr ? absl::OkStatus() : of_filter.Run(shape, source, destination, to);
    };
  });
}

void AddConv(KernelTable* table, const std::string& type, ConvKind kind, size_t space) {
  table->Add(
      type, [=](const KernelSpec& spec) { return Conv(spec, kind, space); },
      [=](const KernelSpec& spec) { return ConvGrad(spec, kind, space); });
}

}  // namespace

void AddConvKernels(KernelTable* table) {
  AddConv(table, "conv2d", ConvKind::kForward, 2);
  AddConv(table, "depthwise_conv2d", ConvKind::kForward, 2);
  AddConv(table, "conv3d", ConvKind::kForward, 3);
  AddConv(table, "conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(table, "depthwise_conv2d_transpose", ConvKind::kTransposed, 2);
  AddConv(table, "conv3d_transpose", ConvKind::kTransposed, 3);
}

}  // namespace weft
