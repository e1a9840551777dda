// Prints a tensor: Out = In. The gradient op is print again, with is_forward false.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/cpu/families.h"
#include "ops/op_kernel.h"

namespace weft {
namespace {

// The shortest text that reads back as the same number.
template <typename T>
std::string NumberText(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return absl::StrCat(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    std::array<char, 32> text;
    return std::string(text.data(), std::to_chars(text.begin(), text.end(), value).ptr);
  } else {
    return NumberText(static_cast<float>(value));
  }
}

// At most `summarize` elements; all if that is negative.
std::string ElementsText(const Tensor& tensor, int64_t summarize) {
  const int64_t count = summarize < 0 ? tensor.size() : std::min(summarize, tensor.size());
  if (count == 0 && tensor.size() > 0) return "[...]";
  std::string text = "[";
  const auto append = [&](auto tag) {
    const auto* values = tensor.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < count; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", NumberText(values[i]));
    }
    return absl::OkStatus();
  };
  const absl::Status status = ForAnyType("input In", tensor, append);
  if (!status.ok()) return std::string(status.message());
  return absl::StrCat(text, count < tensor.size() ? ", ...]" : "]");
}

// One line to stderr that names step, rank and variable, in the first first_n steps, or in all if
// that is not positive.
absl::StatusOr<Kernel> Print(OpKernel op) {
  const In in = op.in("In");
  const Out out = op.out("Out");
  const OpAttrs& attrs = op.attrs();
  const std::string& phase = attrs.String("print_phase");
  const bool prints = phase != (attrs.Bool("is_forward") ? "BACKWARD" : "FORWARD");
  const int64_t first_n = attrs.Int("first_n"), summarize = attrs.Int("summarize");
  const bool has_type = attrs.Bool("print_tensor_type"),
             has_shape = attrs.Bool("print_tensor_shape");
  const std::vector<std::string>& names = op.spec().input_names;
  const bool has_name = attrs.Bool("print_tensor_name") && !names.empty();
  const std::string message = attrs.String("message");
  const std::string head =
      absl::StrCat("print", attrs.Bool("is_forward") ? "" : " (gradient)", has_name ? " of " : "",
                   has_name ? absl::Utf8SafeCEscape(names[in.index()]) : "", ": ",
                   absl::Utf8SafeCEscape(message), message.empty() ? "" : " ");
  return op.InPlace().Make(RawElements{in}, [=, steps = std::make_shared<int64_t>(0)](
                                                const KernelContext& ctx, auto zero) {
    using T = decltype(zero);
    const Tensor& tensor = in(ctx);
    if (prints && (first_n <= 0 || ++*steps <= first_n)) {
      const std::string line = absl::StrCat(
          ctx.place == nullptr ? "" : *ctx.place, ctx.place == nullptr ? "" : ": ", head,
          has_type ? DTypeName(tensor.dtype()) : "", has_shape ? DimsToString(tensor.dims()) : "",
          has_type || has_shape ? " " : "", ElementsText(tensor, summarize), "\n");
      std::fputs(line.c_str(), stderr);
    }
    if (&out(ctx) == &tensor) return;
    std::copy_n(in.elements<T>(ctx), tensor.size(), out.elements<T>(ctx));
  });
}

// Ends the run if Cond is false. Not an OpKernel, which would skip unread outputs.
absl::StatusOr<Kernel> Assert(const KernelSpec& spec) {
  if (spec.element_types != nullptr) *spec.element_types = {DType::kBool};
  WEFT_ASSIGN_OR_RETURN(const int cond, RequiredInput(spec, "Cond"));
  return Kernel([=](const KernelContext& ctx) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const bool condition, OneValue<bool>("Cond", *ctx.inputs[cond]));
    if (condition) return absl::OkStatus();
    return absl::FailedPreconditionError("input Cond: the program asserts it, but it is false");
  });
}

}  // namespace

void AddPrintKernels(KernelTable* table) {
  table->Add("assert", Assert);
  table->Add("print", Print);
}

}  // namespace weft
