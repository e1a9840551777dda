#include "ops/schema/op_key.h"

#include "ops/schema/op_schema.h"

namespace weft {
namespace {

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

const OpKeyBuilder::SignatureInfo& OpKeyBuilder::InfoOf(const Op& op) {
  if (op.signature_id() >= signatures_.size()) signatures_.resize(program_.num_signatures());
  SignatureInfo& info = signatures_[op.signature_id()];
  if (info.is_set) return info;
  info.is_set = true;
  const OpSchema* schema = FindOpSchema(op.type());
  info.has_schema = schema != nullptr;
  if (!info.has_schema) return info;
  const std::vector<OpSignature::Attr>& attrs = op.signature().attrs;
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].type == pb::BLOCK || schema->FindAttr(program_.name(attrs[i].name)) == nullptr) {
      continue;
    }
    info.in_key.resize(i + 1, false);
    info.in_key[i] = true;
  }
  return info;
}

absl::string_view OpKeyBuilder::Of(const Op& op, absl::Span<const uint32_t> numbers) {
  const SignatureInfo& info = InfoOf(op);
  key_.clear();
  AppendRaw(op.signature_id(), &key_);
  key_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint32_t));
  if (info.in_key.empty()) return key_;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (info.in_key[i]) {
      // The length keeps keys of different attributes different.
      AppendRaw(bytes.size(), &key_);
      key_.append(bytes.data(), bytes.size());
    }
    return i + 1 < info.in_key.size();
  });
  return key_;
}

}  // namespace weft
