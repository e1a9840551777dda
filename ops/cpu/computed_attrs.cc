#include "ops/cpu/computed_attrs.h"

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/kernel_util.h"

namespace weft {
namespace {

// Sizes and places of tensors, which double holds exactly, and factors.
using NumberList = std::vector<double>;

absl::Status AddNumbers(const std::string& slot, const Tensor& tensor, NumberList* numbers) {
  return ForNumberType(absl::StrCat("input ", slot), tensor, [&](auto tag) {
    const auto* from = tensor.data<typename decltype(tag)::type>();
    numbers->insert(numbers->end(), from, from + tensor.size());
    return absl::OkStatus();
  });
}

// The numbers as a value of the type that `like` has.
AttrValue ValueLike(const AttrValue& like, const NumberList& numbers) {
  return std::visit(
      [&](const auto& old) -> AttrValue {
        using T = std::decay_t<decltype(old)>;
        if constexpr (std::is_same_v<T, std::vector<int32_t>> ||
                      std::is_same_v<T, std::vector<int64_t>> ||
                      std::is_same_v<T, std::vector<float>>) {
          T list;
          for (double number : numbers) list.push_back(Saturated<typename T::value_type>(number));
          return list;
        } else if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, float>) {
          return Saturated<T>(numbers[0]);
        } else {
          return old;
        }
      },
      like);
}

// An attribute whose slot is there.
struct Source {
  ComputedAttr attr;
  std::string slot;
  KernelSpec::Slot variables;

  absl::StatusOr<NumberList> Read(const KernelContext& ctx) const {
    NumberList numbers;
    for (int i = variables.first; i < variables.first + variables.count; ++i) {
      const Tensor* tensor = ctx.in(i);
      if (tensor == nullptr)
        return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": missing"));
      if (slot == attr.parts) WEFT_RETURN_IF_ERROR(CheckSize(slot, *tensor, 1));
      WEFT_RETURN_IF_ERROR(AddNumbers(slot, *tensor, &numbers));
    }
    if (attr.attrs.size() > 1 && numbers.size() > attr.attrs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("input ", slot, ": expected at most ",
                                                     attr.attrs.size(), " numbers, found ",
                                                     numbers.size()));
    }
    return numbers;
  }

  void Set(const NumberList& numbers, const OpSchema& schema, OpAttrs* attrs) const {
    const auto set = [&](const std::string& name, const NumberList& values) {
      attrs->Set(name, ValueLike(schema.FindAttr(name)->default_value, values));
    };
    if (attr.attrs.size() == 1) return set(attr.attrs[0], numbers);
    const size_t skipped = attr.attrs.size() - numbers.size();
    for (size_t i = 0; i < numbers.size(); ++i) set(attr.attrs[skipped + i], {numbers[i]});
  }
};

// The kernel for the numbers of the last step.
struct Last {
  KernelSpec spec;
  std::vector<NumberList> numbers;
  Kernel kernel;
};

}  // namespace

KernelFactory WithComputedAttrs(std::vector<ComputedAttr> computed, KernelFactory factory) {
  return [computed = std::move(computed),
          factory = std::move(factory)](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    auto last = std::make_shared<Last>();
    last->spec = spec;
    std::vector<Source> sources;
    for (const ComputedAttr& attr : computed) {
      bool is_found = false;
      for (const std::string& slot : {attr.parts, attr.tensor}) {
        const auto it = spec.inputs.find(slot);
        if (it == spec.inputs.end() || it->second.count == 0) continue;
        if (!is_found) sources.push_back({attr, slot, it->second});
        is_found = true;
        last->spec.inputs.erase(slot);
      }
    }
    if (sources.empty()) return factory(spec);
    return Kernel([=, sources = std::move(sources)](const KernelContext& ctx) -> absl::Status {
      std::vector<NumberList> numbers;
      for (const Source& source : sources) {
        WEFT_ASSIGN_OR_RETURN(numbers.emplace_back(), source.Read(ctx));
      }
      if (!last->kernel || numbers != last->numbers) {
        for (size_t i = 0; i < sources.size(); ++i) {
          sources[i].Set(numbers[i], *last->spec.schema, &last->spec.attrs);
        }
        WEFT_ASSIGN_OR_RETURN(last->kernel, factory(last->spec));
        last->numbers = std::move(numbers);
      }
      return last->kernel(ctx);
    });
  };
}

}  // namespace weft
