#include "ops/coalesce_tensor.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "ops/op_kernel.h"
#include "ops/schema/buffer_slices.h"

namespace weft {
namespace {

// The largest alignment of slices, in bytes: padding takes memory.

// The positions of the tensors in the buffer.
struct Layout : SliceLayout {
  std::vector<Dims> dims;
};

struct Coalesce {
  BufferOps ops;
  In inputs;
  Out outputs, fused;
  DType dtype;
  int64_t alignment;  // elements
  bool copy_data, set_constant, persist_output;
  double constant;
  std::vector<Dims> given_dims;  // by input, for inputs without a value; or empty
  Layout layout;                 // of the last step

  // Whether the layout of the last step is that of this one.
  bool HasLayout(const KernelContext& ctx) const {
    if (layout.dims.empty()) return false;
    for (int i = 0; i < inputs.count(); ++i) {
      const Tensor* const input = inputs.get(ctx, i);
      if (input == nullptr || outputs.get(ctx, i) == nullptr) return false;
      const bool fits = input->allocated() ? (!copy_data || input->dtype() == dtype) &&
                                                 input->dims() == layout.dims[i]
                                           : !given_dims.empty();
      if (!fits) return false;
    }
    return true;
  }

  absl::StatusOr<Layout> FindLayout(const KernelContext& ctx) const {
    std::vector<Dims> dims;
    for (int i = 0; i < inputs.count(); ++i) {
      if (inputs.get(ctx, i) == nullptr || outputs.get(ctx, i) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("Input[", i, "] and Output[", i, "]: expected variables"));
      }
      const Tensor& input = inputs(ctx, i);
      if (copy_data && input.allocated() && input.dtype() != dtype) {
        return absl::InvalidArgumentError(
            absl::StrCat("input Input[", i, "]: expected ", DTypeName(dtype),
                         " as attribute dtype, found ", DTypeName(input.dtype())));
      }
      if (!given_dims.empty()) {
        if (copy_data && input.allocated() && input.dims() != given_dims[i]) {
          return absl::InvalidArgumentError(
              absl::StrCat("input Input[", i, "]: expected shape ", DimsToString(given_dims[i]),
                           " as attribute concated_shapes, found ", DimsToString(input.dims())));
        }
        dims.push_back(given_dims[i]);
      } else if (input.allocated()) {
        dims.push_back(input.dims());
      } else {
        return absl::FailedPreconditionError(absl::StrCat(
            "input Input[", i, "] holds nothing, and no attribute concated_shapes says its shape"));
      }
    }
    return LayOutAll(std::move(dims));
  }

  absl::StatusOr<Layout> LayOutAll(std::vector<Dims> dims) const {
    Layout layout;
    int64_t elements = 0;
    for (const Dims& each : dims) {
      elements += NumElements(each);
      if (elements > kMaxElements) break;
    }
    layout.dims = std::move(dims);
    if (elements <= kMaxElements) {
      static_cast<SliceLayout&>(layout) = LayOutSlices(layout.dims, alignment);
    }
    if (std::max(elements, layout.size) > kMaxElements) {
      return absl::InvalidArgumentError(
          absl::StrCat("the buffer would have more than ", kMaxElements, " elements"));
    }
    return layout;
  }

  char* Slice(const Tensor& buffer, const Layout& layout, int i) const {
    return static_cast<char*>(const_cast<void*>(buffer.raw())) + layout.offsets[i] * SizeOf(dtype);
  }

  bool IsLaidOut(const KernelContext& ctx, const Layout& layout) const {
    const Tensor& buffer = fused(ctx);
    if (!buffer.allocated() || buffer.dtype() != dtype || buffer.size() != layout.size)
      return false;
    for (int i = 0; i < outputs.count(); ++i) {
      const Tensor& output = outputs(ctx, i);
      if (output.raw() != Slice(buffer, layout, i) || output.dims() != layout.dims[i]) return false;
    }
    return true;
  }

  // Each output must be a distinct tensor, and must not be another output's input.
  absl::Status CheckDistinct(const KernelContext& ctx) const {
    std::set<const Tensor*> seen = {&fused(ctx)};
    for (int i = 0; i < outputs.count(); ++i) {
      if (seen.insert(outputs.get(ctx, i)).second) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "output Output[", i, "]: is FusedOutput or another Output too; expected distinct ones"));
    }
    for (int i = 0; copy_data && i < inputs.count(); ++i) {
      const Tensor* input = inputs.get(ctx, i);
      if (input == outputs.get(ctx, i) || seen.count(input) == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("input Input[", i, "]: is FusedOutput or another one's Output"));
    }
    return absl::OkStatus();
  }

  // A new zeroed buffer, with the outputs in it. They keep their values if requested.
  absl::Status LayOut(const KernelContext& ctx, const Layout& layout) const {
    Memory* const place = fused(ctx).memory();
    auto memory = std::make_shared<Tensor>(place);
    memory->Resize(dtype, {layout.size});
    WEFT_RETURN_IF_ERROR(ops.clear(ctx, memory->raw(), memory->bytes()));
    for (int i = 0; i < outputs.count(); ++i) {
      Tensor* output = outputs.get(ctx, i);
      Tensor slice = Tensor::Wrap(dtype, layout.dims[i], memory, Slice(*memory, layout, i), place);
      // An input that is also the output would be overwritten before it is copied.
      const bool keep = copy_data ? inputs.get(ctx, i) == output : persist_output && !set_constant;
      if (keep && output->allocated() && output->bytes() == slice.bytes()) {
        WEFT_RETURN_IF_ERROR(ops.copy(ctx, output->raw(), slice.bytes(), slice.raw()));
      }
      *output = std::move(slice);
    }
    fused(ctx) = Tensor::Wrap(dtype, {layout.size}, memory, memory->raw(), place);
    return absl::OkStatus();
  }

  absl::Status ClearPadding(const KernelContext& ctx, const Layout& layout) const {
    for (size_t i = 0; i < layout.offsets.size(); ++i) {
      const int64_t begin = layout.offsets[i] + NumElements(layout.dims[i]);
      const int64_t end = i + 1 < layout.offsets.size() ? layout.offsets[i + 1] : layout.size;
      if (begin == end) continue;
      char* const data = static_cast<char*>(fused(ctx).raw()) + begin * SizeOf(dtype);
      WEFT_RETURN_IF_ERROR(ops.clear(ctx, data, (end - begin) * SizeOf(dtype)));
    }
    return absl::OkStatus();
  }

  absl::Status CopyInputs(const KernelContext& ctx) const {
    for (int i = 0; i < inputs.count(); ++i) {
      const Tensor& input = inputs(ctx, i);
      Tensor* output = outputs.get(ctx, i);
      if (&input == output) continue;
      if (!input.allocated()) {
        return absl::FailedPreconditionError(
            absl::StrCat("input Input[", i, "] holds nothing that could be copied"));
      }
      WEFT_RETURN_IF_ERROR(ops.copy(ctx, input.raw(), input.bytes(), output->raw()));
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const KernelContext& ctx) {
    if (!HasLayout(ctx)) {
      WEFT_ASSIGN_OR_RETURN(layout, FindLayout(ctx));
    }
    if (!IsLaidOut(ctx, layout)) {
      WEFT_RETURN_IF_ERROR(CheckDistinct(ctx));
      WEFT_RETURN_IF_ERROR(LayOut(ctx, layout));
    } else {
      WEFT_RETURN_IF_ERROR(ClearPadding(ctx, layout));
    }
    if (copy_data) return CopyInputs(ctx);
    return set_constant ? ops.fill(ctx, constant, &fused(ctx)) : absl::OkStatus();
  }
};

// The shapes in attributes concated_shapes and concated_ranks, by input; empty if not set.
absl::StatusOr<std::vector<Dims>> GivenDims(const OpAttrs& attrs, int count) {
  const std::vector<int64_t> shapes = attrs.Ints("concated_shapes");
  const std::vector<int64_t> ranks = attrs.Ints("concated_ranks");
  std::vector<Dims> dims;
  if (ranks.empty() && shapes.empty()) return dims;
  size_t at = 0;
  for (int64_t rank : ranks) {
    if (rank < 0 || static_cast<size_t>(rank) > shapes.size() - at) break;
    dims.emplace_back(shapes.begin() + at, shapes.begin() + at + rank);
    at += rank;
  }
  bool known = true;
  for (const Dims& d : dims) known &= NumElements(d) >= 0 && NumElements(d) <= kMaxElements;
  if (static_cast<int>(dims.size()) == count && ranks.size() == dims.size() &&
      at == shapes.size() && known) {
    return dims;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attributes concated_shapes and concated_ranks: expected the shapes of ", count,
                   " inputs one after the other, found ", shapes.size(), " dimensions for ",
                   ranks.size(), " inputs"));
}

}  // namespace

absl::StatusOr<Kernel> CoalesceTensor(const KernelSpec& spec, const BufferOps& ops) {
  OpKernel op(spec);
  op.WithoutHalfConversion().Supports(AllTypes(In()));
  Coalesce kernel;
  kernel.ops = ops;
  kernel.inputs = op.in("Input");
  kernel.outputs = op.out("Output");
  kernel.fused = op.out("FusedOutput");
  if (kernel.inputs.count() == 0 || kernel.inputs.count() != kernel.outputs.count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected as many variables in output Output as in input Input, one or more; "
                     "found ",
                     kernel.outputs.count(), " and ", kernel.inputs.count()));
  }
  if (!kernel.fused) return absl::InvalidArgumentError("output FusedOutput: missing");
  const absl::optional<DType> dtype = DTypeFromProto(static_cast<int>(spec.attrs.Int("dtype")));
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute dtype: ", spec.attrs.Int("dtype"), " is no element type"));
  }
  kernel.dtype = *dtype;
  const int64_t given = spec.attrs.Int("align_size");
  kernel.alignment = SliceAlignment(spec.attrs.Bool("use_align"), given, *dtype);
  kernel.copy_data = spec.attrs.Bool("copy_data");
  kernel.set_constant = spec.attrs.Bool("set_constant");
  kernel.persist_output = spec.attrs.Bool("persist_output");
  kernel.constant = spec.attrs.Float("constant");
  WEFT_ASSIGN_OR_RETURN(kernel.given_dims, GivenDims(spec.attrs, kernel.inputs.count()));
  // A layout that is too large is an error of the step.
  absl::StatusOr<Layout> given_layout = kernel.LayOutAll(kernel.given_dims);
  if (given_layout.ok()) kernel.layout = *std::move(given_layout);
  return Kernel(kernel);
}

}  // namespace weft
