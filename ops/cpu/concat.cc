// Joining tensors along an axis, and cutting one up.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/status_macros.h"
#include "ops/cpu/families.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

using Tensors = absl::Span<const Tensor* const>;

// Copies `rows` rows of `width` bytes; rows begin `from_stride` and `to_stride` bytes apart.
void CopyRows(int64_t rows, size_t width, const char* from, size_t from_stride, char* to,
              size_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * to_stride, from + row * from_stride, width);
  }
}

// A tensor that is made of parts along an axis: rows of bytes, each a row of every part in turn.
struct Layout {
  DType dtype;
  Dims dims;  // of the whole
  int axis;

  int64_t rows() const { return NumElements(absl::MakeConstSpan(dims).first(axis)); }
  // Bytes of a row of a part of this size along the axis.
  size_t Width(int64_t size) const {
    return size * NumElements(absl::MakeConstSpan(dims).subspan(axis + 1)) * SizeOf(dtype);
  }
  size_t width() const { return Width(dims[axis]); }
  Dims PartDims(int64_t size) const {
    Dims part = dims;
    part[axis] = size;
    return part;
  }
};

// How these tensors stand in the one that they make: they agree but along the axis.
absl::StatusOr<Layout> LayoutOf(Tensors parts, int64_t axis_attr) {
  for (const Tensor* part : parts) {
    if (part == nullptr) return absl::InvalidArgumentError("input X: a variable is missing");
  }
  Layout layout;
  layout.dtype = parts[0]->dtype();
  layout.dims = parts[0]->dims();
  WEFT_ASSIGN_OR_RETURN(layout.axis, AxisOf(axis_attr, layout.dims));
  for (const Tensor* part : parts.subspan(1)) {
    Dims expected = parts[0]->dims();
    if (part->rank() == parts[0]->rank()) expected[layout.axis] = part->dim(layout.axis);
    WEFT_RETURN_IF_ERROR(CheckDType("X", *part, layout.dtype));
    WEFT_RETURN_IF_ERROR(CheckDims("X", *part, expected));
    layout.dims[layout.axis] += part->dim(layout.axis);
  }
  return layout;
}

// Cuts `whole` into parts of these sizes along the axis, each to `parts` of the same index unless
// that is null. A part may be `whole` where it is the only one.
absl::Status Cut(const Tensor& whole, const Layout& layout, absl::Span<const int64_t> sizes,
                 absl::Span<Tensor* const> parts) {
  if (sizes.size() > 1 && std::find(parts.begin(), parts.end(), &whole) != parts.end()) {
    return absl::UnimplementedError("no kernel that cuts a tensor up in its own place");
  }
  const int64_t rows = layout.rows();
  const auto* from = static_cast<const char*>(whole.raw());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t width = layout.Width(sizes[i]);
    if (parts[i] != nullptr && parts[i] != &whole) {
      parts[i]->Resize(layout.dtype, layout.PartDims(sizes[i]));
      CopyRows(rows, width, from, layout.width(), static_cast<char*>(parts[i]->raw()), width);
    }
    from += width;
  }
  return absl::OkStatus();
}

// Out = X[0], X[1], ... one after the other along the axis.
absl::StatusOr<Kernel> Concat(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"AxisTensor"}));
  WEFT_ASSIGN_OR_RETURN(const KernelSpec::Slot x_slot, RequiredInputs(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int out_index, RequiredOutput(spec, "Out"));
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    const Tensors parts = ctx.inputs.subspan(x_slot.first, x_slot.count);
    Tensor* out = ctx.out(out_index);
    WEFT_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(parts, axis));
    if (std::find(parts.begin(), parts.end(), out) != parts.end()) {
      if (parts.size() == 1) return absl::OkStatus();
      return absl::UnimplementedError("output Out: no kernel that joins in place of an input");
    }
    out->Resize(layout.dtype, layout.dims);
    auto* to = static_cast<char*>(out->raw());
    for (const Tensor* part : parts) {
      const size_t width = layout.Width(part->dim(layout.axis));
      CopyRows(layout.rows(), width, static_cast<const char*>(part->raw()), width, to,
               layout.width());
      to += width;
    }
    return absl::OkStatus();
  });
}

// X@GRAD = the parts of Out@GRAD that the X were joined to.
absl::StatusOr<Kernel> ConcatGrad(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"AxisTensor"}));
  WEFT_ASSIGN_OR_RETURN(const KernelSpec::Slot x_slot, RequiredInputs(spec, "X"));
  WEFT_ASSIGN_OR_RETURN(const int dout_index, RequiredInput(spec, "Out@GRAD"));
  if (spec.Output("X@GRAD") < 0) {
    return Kernel([](const KernelContext&) { return absl::OkStatus(); });
  }
  const KernelSpec::Slot dx_slot = spec.outputs.at("X@GRAD");
  if (dx_slot.count != x_slot.count) {
    return absl::InvalidArgumentError(absl::StrCat("output X@GRAD: expected ", x_slot.count,
                                                   " variables, as many as X has, found ",
                                                   dx_slot.count));
  }
  const int64_t axis = spec.attrs.Int("axis");
  return Kernel(
      [=, sizes = std::vector<int64_t>()](const KernelContext& ctx) mutable -> absl::Status {
        const Tensors parts = ctx.inputs.subspan(x_slot.first, x_slot.count);
        const Tensor& dout = *ctx.in(dout_index);
        WEFT_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(parts, axis));
        WEFT_RETURN_IF_ERROR(CheckDType("Out@GRAD", dout, layout.dtype));
        WEFT_RETURN_IF_ERROR(CheckDims("Out@GRAD", dout, layout.dims));
        sizes.clear();
        for (const Tensor* part : parts) sizes.push_back(part->dim(layout.axis));
        return Cut(dout, layout, sizes, ctx.outputs.subspan(dx_slot.first, dx_slot.count));
      });
}

// The sizes of the parts along an axis of `size`: the given ones, of which one may be -1 (the
// rest), or `count` equal ones where none is given.
absl::Status PartSizes(int64_t size, absl::Span<const int64_t> sections, int count,
                       std::vector<int64_t>* sizes) {
  if (sections.empty()) {
    if (size % count != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input X: ", size, " elements along the axis are not ", count, " equal parts"));
    }
    sizes->assign(count, size / count);
    return absl::OkStatus();
  }
  int64_t rest = size;
  for (int64_t section : sections) rest -= std::max<int64_t>(section, 0);
  const int64_t open = std::count(sections.begin(), sections.end(), -1);
  if (rest < 0 || open > 1 || (open == 0 && rest != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("attribute sections: ", DimsToString(sections),
                                                   " are not parts of ", size, " elements"));
  }
  sizes->clear();
  for (int64_t section : sections) sizes->push_back(section == -1 ? rest : section);
  return absl::OkStatus();
}

// Out = parts of X along the axis.
absl::StatusOr<Kernel> Split(const KernelSpec& spec) {
  WEFT_RETURN_IF_ERROR(NoInputs(spec, {"AxisTensor", "SectionsTensorList"}));
  WEFT_ASSIGN_OR_RETURN(const int x_index, RequiredInput(spec, "X"));
  WEFT_RETURN_IF_ERROR(RequiredOutput(spec, "Out").status());
  const KernelSpec::Slot out_slot = spec.outputs.at("Out");
  const int64_t axis_attr = spec.attrs.Int("axis"), num = spec.attrs.Int("num");
  const std::vector<int64_t> sections =
      num > 0 ? std::vector<int64_t>() : spec.attrs.Ints("sections");
  const int64_t count = num > 0 ? num : static_cast<int64_t>(sections.size());
  if (count != out_slot.count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "output Out: expected ", count, " variables, one a part, found ", out_slot.count));
  }
  for (int64_t section : sections) {
    if (section >= -1 && section <= kMaxElements) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attribute sections: ", section, " is no size of a part"));
  }
  return Kernel(
      [=, sizes = std::vector<int64_t>()](const KernelContext& ctx) mutable -> absl::Status {
        const Tensor& x = *ctx.in(x_index);
        Layout layout;
        layout.dtype = x.dtype();
        layout.dims = x.dims();
        WEFT_ASSIGN_OR_RETURN(layout.axis, AxisOf(axis_attr, layout.dims));
        WEFT_RETURN_IF_ERROR(PartSizes(x.dim(layout.axis), sections, out_slot.count, &sizes));
        return Cut(x, layout, sizes, ctx.outputs.subspan(out_slot.first, out_slot.count));
      });
}

}  // namespace

void AddConcatKernels(KernelTable* table) {
  table->Add("concat", Concat);
  table->Add("concat_grad", ConcatGrad);
  table->Add("split", Split);
}

}  // namespace weft
