#include "ops/schema/windows.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/schema/infer_functions.h"
#include "ops/schema/tensor_type.h"

namespace weft {
namespace {

absl::Status AttrError(absl::string_view name, absl::string_view expected,
                       absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", name, ": expected ", expected, ", found ", found));
}

absl::StatusOr<Window::Padding> ReadPadding(const OpAttrs& attrs) {
  if (!attrs.Has("padding_algorithm")) return Window::Padding::kExplicit;
  const std::string& algorithm = attrs.String("padding_algorithm");
  if (algorithm == "EXPLICIT") return Window::Padding::kExplicit;
  if (algorithm == "SAME") return Window::Padding::kSame;
  if (algorithm == "VALID") return Window::Padding::kValid;
  return AttrError("padding_algorithm", "EXPLICIT, SAME or VALID", algorithm);
}

}  // namespace

int64_t Window::extent() const { return size == -1 ? -1 : AddDim(MulDim(dilation, size - 1), 1); }

absl::string_view NumberWord(size_t number) {
  static constexpr const char* kWords[] = {"zero", "one", "two", "three", "four", "five", "six"};
  return kWords[number];
}

absl::StatusOr<std::vector<int64_t>> ReadPositive(const OpAttrs& attrs, absl::string_view name,
                                                  size_t num_dims) {
  std::vector<int64_t> values = attrs.Ints(name);
  const bool positive = std::all_of(values.begin(), values.end(), [](int64_t v) { return v > 0; });
  if (values.size() == num_dims && positive) return values;
  return AttrError(name, absl::StrCat(NumberWord(num_dims), " positive numbers"),
                   DimsToString(values));
}

absl::StatusOr<bool> ReadChannelsLast(const OpAttrs& attrs, size_t num_dims) {
  if (!attrs.Has("data_format")) return false;
  const std::string& format = attrs.String("data_format");
  const char* const first = num_dims == 2 ? "NCHW" : "NCDHW";
  const char* const last = num_dims == 2 ? "NHWC" : "NDHWC";
  // NCHW: what Paddle's Conv3DTranspose writes for NCDHW.
  if (format == first || format == "NCHW" || format == "AnyLayout") return false;
  if (format == last) return true;
  return AttrError("data_format", absl::StrCat(first, " or ", last), format);
}

absl::StatusOr<std::vector<Window>> ReadWindows(const OpAttrs& attrs, size_t num_dims) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                        ReadPositive(attrs, "strides", num_dims));
  std::vector<int64_t> dilations(num_dims, 1);
  if (attrs.Has("dilations")) {
    WEFT_ASSIGN_OR_RETURN(dilations, ReadPositive(attrs, "dilations", num_dims));
  }
  const std::vector<int64_t> paddings = attrs.Ints("paddings");
  if (paddings.size() != num_dims && paddings.size() != 2 * num_dims) {
    return AttrError(
        "paddings",
        absl::StrCat(NumberWord(num_dims), " or ", NumberWord(2 * num_dims), " numbers"),
        DimsToString(paddings));
  }
  if (std::any_of(paddings.begin(), paddings.end(), [](int64_t p) { return p < 0; })) {
    return AttrError("paddings", "no negative number", DimsToString(paddings));
  }
  WEFT_ASSIGN_OR_RETURN(const Window::Padding padding, ReadPadding(attrs));
  const size_t per_dim = paddings.size() / num_dims;
  std::vector<Window> windows(num_dims);
  for (size_t i = 0; i < num_dims; ++i) {
    windows[i].stride = strides[i];
    windows[i].dilation = padding == Window::Padding::kSame ? 1 : dilations[i];
    windows[i].pad_begin = paddings[i * per_dim];
    windows[i].pad_end = paddings[i * per_dim + per_dim - 1];
    windows[i].padding = padding;
  }
  return windows;
}

Window WithExplicitPaddings(const Window& window, int64_t size) {
  Window result = window;
  result.padding = Window::Padding::kExplicit;
  if (window.padding == Window::Padding::kValid) result.pad_begin = result.pad_end = 0;
  if (window.padding == Window::Padding::kSame) {
    const int64_t positions = (size + window.stride - 1) / window.stride;
    const int64_t sum = std::max<int64_t>((positions - 1) * window.stride + window.size - size, 0);
    result.pad_begin = sum / 2;
    result.pad_end = sum - result.pad_begin;
  }
  return result;
}

absl::optional<int64_t> NumPositions(int64_t size, const Window& window, Rounding rounding) {
  if (size == -1 || window.size == -1) return -1;
  if (window.padding == Window::Padding::kSame) return (size + window.stride - 1) / window.stride;
  const Window w = WithExplicitPaddings(window, size);
  const int64_t room = size + w.pad_begin + w.pad_end - w.extent();
  if (room < 0) return absl::nullopt;
  return (room + (rounding == Rounding::kUp ? w.stride - 1 : 0)) / w.stride + 1;
}

}  // namespace weft
