#include "ops/schema/infer_cache.h"

#include "ops/schema/infer.h"

namespace weft {
namespace {

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

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
    : program_(program),
      types_(types),
      empty_(program.FindSymbol(kEmptyVarName)),
      signatures_(program.num_signatures()) {}

const InferCache::SignatureInfo& InferCache::InfoOf(const Op& op) {
  if (op.signature_id() >= signatures_.size()) signatures_.resize(program_.num_signatures());
  SignatureInfo& info = signatures_[op.signature_id()];
  if (info.is_set) return info;
  info.is_set = true;
  const OpSchema* schema = FindOpSchema(op.type());
  info.has_schema = schema != nullptr;
  if (!info.has_schema) return info;
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  for (size_t i = 0; i < attrs.size(); ++i) {
    // Types do not depend on which block an op runs.
    if (attrs[i].type == pb::BLOCK || schema->FindAttr(program_.name(attrs[i].name)) == nullptr) {
      continue;
    }
    info.in_key.resize(i + 1, false);
    info.in_key[i] = true;
  }
  return info;
}

void InferCache::MakeKey(const Op& op, const SignatureInfo& info, absl::Span<const TypeId> inputs) {
  key_.clear();
  AppendRaw(op.signature_id(), &key_);
  const absl::Span<const Symbol> args = op.input_args();
  for (size_t i = 0; i < args.size(); ++i) {
    AppendRaw(args[i] == empty_ ? kUnknownType : inputs[i], &key_);
  }
  if (info.in_key.empty()) return;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (info.in_key[i]) {
      // The length keeps keys of different attributes different.
      AppendRaw(bytes.size(), &key_);
      key_.append(bytes.data(), bytes.size());
    }
    return i + 1 < info.in_key.size();
  });
}

absl::optional<absl::Span<const TypeId>> InferCache::Infer(const Op& op,
                                                           absl::Span<const TypeId> inputs) {
  const SignatureInfo& info = InfoOf(op);
  const size_t num_outputs = op.output_args().size();
  if (!info.has_schema) {
    if (unknown_.size() < num_outputs) unknown_.resize(num_outputs, kUnknownType);
    return absl::MakeConstSpan(unknown_).first(num_outputs);
  }
  MakeKey(op, info, inputs);
  auto it = results_.find(key_);
  if (it == results_.end()) {
    it = results_.emplace(key_, InferNow(op, inputs)).first;
  }
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
