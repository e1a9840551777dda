#include "ops/make_kernel.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ops/bound_kernel.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

// The value of an attribute: integers are exact as `integer`, others as `value`.
struct Number {
  bool is_integer;
  int64_t integer;
  double value;

  friend bool operator==(const Number& a, const Number& b) {
    return a.is_integer == b.is_integer &&
           (a.is_integer ? a.integer == b.integer
                         : a.value == b.value || (a.value != a.value && b.value != b.value));
  }
};

absl::Status AppendNumbers(const std::string& slot, const Tensor* tensor,
                           std::vector<Number>* numbers) {
  if (tensor == nullptr || !tensor->allocated() || tensor->is_rows()) {
    return absl::InvalidArgumentError(absl::StrCat(slot, ": expected a tensor of numbers"));
  }
  if (!tensor->memory()->IsHost()) {
    return absl::UnimplementedError(absl::StrCat(slot, ": is not in host memory"));
  }
  return ForArithmeticType(slot, *tensor, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = tensor->data<T>();
    for (int64_t i = 0; i < tensor->size(); ++i) {
      constexpr bool kIsInteger = std::is_integral_v<T>;
      numbers->push_back({kIsInteger, kIsInteger ? static_cast<int64_t>(values[i]) : 0,
                          static_cast<double>(values[i])});
    }
    return absl::OkStatus();
  });
}

std::string Text(const Number& number) {
  return number.is_integer ? absl::StrCat(number.integer) : absl::StrFormat("%.17g", number.value);
}

// `numbers` as an attribute of the type of `like`; floating-point ones in double precision. None if
// they do not fit.
absl::optional<AttrValue> ValueLike(const AttrValue& like, const std::vector<Number>& numbers) {
  const auto is = [&](auto example) { return std::holds_alternative<decltype(example)>(like); };
  const bool is_list = is(std::vector<int32_t>()) || is(std::vector<int64_t>()) ||
                       is(std::vector<float>()) || is(std::vector<double>());
  if (!is_list && numbers.size() != 1) return absl::nullopt;
  if (is(std::string())) return AttrValue(Text(numbers[0]));
  if (is(float()) || is(double())) return AttrValue(numbers[0].value);
  if (is(std::vector<float>()) || is(std::vector<double>())) {
    std::vector<double> values;
    for (const Number& number : numbers) values.push_back(number.value);
    return AttrValue(values);
  }
  std::vector<int64_t> integers;
  for (const Number& number : numbers) {
    if (!number.is_integer) return absl::nullopt;
    integers.push_back(number.integer);
  }
  if (is_list) return AttrValue(integers);
  if (is(int32_t()) || is(int64_t())) return AttrValue(integers[0]);
  return absl::nullopt;
}

// An input that replaces an attribute.
struct AttrInput {
  const SlotSchema* schema;
  KernelSpec::Slot slot;
};

class Maker {
 public:
  Maker(KernelFactory factory, KernelSpec spec, std::vector<AttrInput> inputs)
      : factory_(std::move(factory)), spec_(std::move(spec)), inputs_(std::move(inputs)) {
    for (const AttrInput& input : inputs_) spec_.inputs.erase(input.schema->name);
  }

  absl::Status Run(const KernelContext& ctx) {
    std::vector<std::vector<Number>> numbers(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const KernelSpec::Slot& slot = inputs_[i].slot;
      for (const Tensor* tensor : ctx.inputs.subspan(slot.first, slot.count)) {
        if (inputs_[i].schema->duplicable && tensor != nullptr) {
          WEFT_RETURN_IF_ERROR(CheckSize(inputs_[i].schema->name, *tensor, 1));
        }
        WEFT_RETURN_IF_ERROR(
            AppendNumbers(absl::StrCat("input ", inputs_[i].schema->name), tensor, &numbers[i]));
      }
    }
    if (!is_made_ || numbers != numbers_) {
      is_made_ = false;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        WEFT_RETURN_IF_ERROR(SetAttrs(*inputs_[i].schema, numbers[i]));
      }
      WEFT_RETURN_IF_ERROR(spec_.attrs.CheckRanges([](absl::string_view) { return false; }));
      WEFT_ASSIGN_OR_RETURN(Kernel kernel, factory_(spec_));
      kernel_ = BoundKernel(std::move(kernel));
      is_made_ = true;
      numbers_ = std::move(numbers);
    }
    return kernel_.Run(ctx);
  }

 private:
  absl::Status SetAttrs(const SlotSchema& input, const std::vector<Number>& numbers) {
    const std::vector<std::string>& names = input.attrs;
    const bool one_each = names.size() > 1;
    if (one_each && numbers.size() > names.size()) return DoesNotFit(input, numbers);
    // Fewer numbers than attributes set the last ones: width; height and width.
    const size_t skipped = one_each ? names.size() - numbers.size() : 0;
    for (size_t i = skipped; i < names.size(); ++i) {
      absl::optional<AttrValue> value =
          ValueLike(spec_.schema->FindAttr(names[i])->default_value,
                    one_each ? std::vector<Number>{numbers[i - skipped]} : numbers);
      if (!value.has_value()) return DoesNotFit(input, numbers);
      spec_.attrs.Set(names[i], *std::move(value));
    }
    return absl::OkStatus();
  }

  static absl::Status DoesNotFit(const SlotSchema& input, const std::vector<Number>& numbers) {
    std::string text;
    for (const Number& number : numbers)
      absl::StrAppend(&text, text.empty() ? "" : ", ", Text(number));
    return absl::InvalidArgumentError(absl::StrCat("input ", input.name, ": [", text,
                                                   "] is no value of attribute ", input.attrs[0]));
  }

  const KernelFactory factory_;
  KernelSpec spec_;
  const std::vector<AttrInput> inputs_;
  std::vector<std::vector<Number>> numbers_;  // values from which kernel_ was made
  BoundKernel kernel_;
  bool is_made_ = false;
};

}  // namespace

absl::StatusOr<Kernel> MakeKernel(const KernelFactory& factory, KernelSpec spec) {
  if (spec.schema == nullptr) return factory(spec);  // a kernel of the executor
  std::vector<AttrInput> lists, inputs;
  for (const SlotSchema& schema : spec.schema->inputs()) {
    const auto it = spec.inputs.find(schema.name);
    if (schema.attrs.empty() || it == spec.inputs.end() || it->second.count == 0) continue;
    (schema.duplicable ? lists : inputs).push_back({&schema, it->second});
  }
  inputs.insert(inputs.end(), lists.begin(), lists.end());  // later ones override
  WEFT_RETURN_IF_ERROR(spec.attrs.CheckRanges([&](absl::string_view attr) {
    return absl::c_any_of(inputs, [&](const AttrInput& input) {
      return absl::c_linear_search(input.schema->attrs, attr);
    });
  }));
  if (inputs.empty()) return factory(spec);
  auto maker = std::make_shared<Maker>(factory, std::move(spec), std::move(inputs));
  return Kernel([maker](const KernelContext& ctx) { return maker->Run(ctx); });
}

}  // namespace weft
