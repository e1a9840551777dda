#include "ops/schema/infer_cache.h"

#include "ops/schema/infer.h"

namespace weft {
namespace {

// The types of an op's inputs by name. Inference looks them up in the order of the arguments.
class Lookup {
 public:
  Lookup(const Op& op, absl::Span<const TypeId> inputs, const TypeTable& types)
      : names_(op.input_args()), inputs_(inputs), types_(types) {}

  absl::optional<TensorType> operator()(Symbol name) {
    for (size_t tried = 0; tried < names_.size(); ++tried) {
      const size_t i = next_;
      next_ = next_ + 1 == names_.size() ? 0 : next_ + 1;
      if (names_[i] == name) return types_.type(inputs_[i]);
    }
    return absl::nullopt;
  }

 private:
  const absl::Span<const Symbol> names_;
  const absl::Span<const TypeId> inputs_;
  const TypeTable& types_;
  size_t next_ = 0;
};

}  // namespace

InferCache::InferCache(const Program& program, TypeTable* types)
    : types_(types), empty_(program.FindSymbol(kEmptyVarName)), keys_(program) {}

absl::optional<absl::Span<const TypeId>> InferCache::Infer(const Op& op,
                                                           absl::Span<const TypeId> inputs) {
  const size_t num_outputs = op.output_args().size();
  if (!keys_.HasSchema(op)) {
    if (unknown_.size() < num_outputs) unknown_.resize(num_outputs, kUnknownType);
    return absl::MakeConstSpan(unknown_).first(num_outputs);
  }
  numbers_.clear();
  const absl::Span<const Symbol> args = op.input_args();
  for (size_t i = 0; i < args.size(); ++i) {
    numbers_.push_back(args[i] == empty_ ? kUnknownType : inputs[i]);
  }
  const absl::string_view key = keys_.Of(op, numbers_);
  auto it = results_.find(key);
  if (it == results_.end()) it = results_.emplace(key, InferNow(op, inputs)).first;
  if (!it->second.fits) return absl::nullopt;
  return absl::MakeConstSpan(outputs_).subspan(it->second.first_output, num_outputs);
}

InferCache::Result InferCache::InferNow(const Op& op, absl::Span<const TypeId> inputs) {
  const auto types = InferOutputs(op, Lookup(op, inputs, *types_));
  Result result;
  result.fits = types.ok();
  result.first_output = outputs_.size();
  if (!result.fits) return result;
  for (const absl::optional<TensorType>& type : *types) outputs_.push_back(types_->Intern(type));
  return result;
}

absl::Status InferCache::Error(const Op& op, absl::Span<const TypeId> inputs) const {
  return InferOutputs(op, Lookup(op, inputs, *types_)).status();
}

}  // namespace weft
