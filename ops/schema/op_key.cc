#include "ops/schema/op_key.h"

#include "ops/schema/op_schema.h"

namespace weft {
namespace {

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

OpKeyBuilder::SignatureInfo& OpKeyBuilder::InfoOf(const Op& op) {
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

uint32_t OpKeyBuilder::AttrNumber(const Op& op, SignatureInfo* info) {
  if (info->in_key.empty()) return 0;
  attrs_.clear();
  bool is_as_last = false;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (i == 0) {
      // Most ops have the attributes of the last op of their signature: comparing them all at once
      // is faster than reading them.
      const absl::string_view attrs = op.bytes().substr(bytes.data() - op.bytes().data());
      is_as_last = bytes.size() == info->last_first_size && attrs == info->last_attrs;
      if (is_as_last) return false;
      info->last_first_size = bytes.size();
      info->last_attrs = attrs;
    }
    if (info->in_key[i]) {
      // The length keeps keys of different attributes different.
      AppendRaw(bytes.size(), &attrs_);
      attrs_.append(bytes.data(), bytes.size());
    }
    return i + 1 < info->in_key.size();
  });
  if (is_as_last) return info->last_number;
  const auto number = static_cast<uint32_t>(info->attr_numbers.size());
  info->last_number = info->attr_numbers.try_emplace(attrs_, number).first->second;
  return info->last_number;
}

absl::string_view OpKeyBuilder::Of(const Op& op, absl::Span<const uint32_t> numbers) {
  key_.clear();
  AppendRaw(op.signature_id(), &key_);
  AppendRaw(AttrNumber(op, &InfoOf(op)), &key_);
  key_.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint32_t));
  return key_;
}

}  // namespace weft
