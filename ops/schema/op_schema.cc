#include "ops/schema/op_schema.h"

#include <algorithm>

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;

// Finds what has that name; schemas are small, so a scan is quicker than a map.
template <typename T>
const T* FindByName(const std::vector<T>& items, absl::string_view name) {
  for (const T& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

SlotSchema MakeSlot(std::string name, int flags) {
  SlotSchema slot;
  slot.name = std::move(name);
  slot.optional = (flags & OpSchema::kOptional) != 0;
  slot.duplicable = (flags & OpSchema::kDuplicable) != 0;
  slot.loose_type = (flags & OpSchema::kLooseType) != 0;
  slot.unwritten = (flags & OpSchema::kUnwritten) != 0;
  slot.is_loss_scale = (flags & OpSchema::kLossScale) != 0;
  return slot;
}

struct AttrTypeOfAlternative {
  pb::AttrType operator()(int32_t) const { return pb::INT; }
  pb::AttrType operator()(int64_t) const { return pb::LONG; }
  pb::AttrType operator()(float) const { return pb::FLOAT; }
  pb::AttrType operator()(double) const { return pb::FLOAT64; }
  pb::AttrType operator()(bool) const { return pb::BOOLEAN; }
  pb::AttrType operator()(const std::string&) const { return pb::STRING; }
  pb::AttrType operator()(const std::vector<int32_t>&) const { return pb::INTS; }
  pb::AttrType operator()(const std::vector<int64_t>&) const { return pb::LONGS; }
  pb::AttrType operator()(const std::vector<float>&) const { return pb::FLOATS; }
  pb::AttrType operator()(const std::vector<double>&) const { return pb::FLOAT64S; }
  pb::AttrType operator()(const std::vector<bool>&) const { return pb::BOOLEANS; }
  pb::AttrType operator()(const std::vector<std::string>&) const { return pb::STRINGS; }
  pb::AttrType operator()(BlockRef) const { return pb::BLOCK; }
};

}  // namespace

pb::AttrType AttrTypeOf(const AttrValue& value) {
  return std::visit(AttrTypeOfAlternative(), value);
}

OpSchema&& OpSchema::In(std::string slot, int flags) && {
  inputs_.push_back(MakeSlot(std::move(slot), flags));
  return std::move(*this);
}

OpSchema&& OpSchema::AttrIn(std::string slot, std::vector<std::string> attrs, int flags) && {
  inputs_.push_back(MakeSlot(std::move(slot), flags | kOptional));
  inputs_.back().attrs = std::move(attrs);
  return std::move(*this);
}

OpSchema&& OpSchema::Out(std::string slot, int flags) && {
  outputs_.push_back(MakeSlot(std::move(slot), flags));
  return std::move(*this);
}

OpSchema&& OpSchema::OutInPlace(std::string slot, std::string of, int flags) && {
  outputs_.push_back(MakeSlot(std::move(slot), flags));
  outputs_.back().in_place_of = std::move(of);
  return std::move(*this);
}

OpSchema&& OpSchema::Attr(std::string name, AttrValue default_value) && {
  attrs_.push_back({std::move(name), std::move(default_value), /*required=*/false});
  return std::move(*this);
}

OpSchema&& OpSchema::RequiredAttr(std::string name, AttrValue type_example) && {
  attrs_.push_back({std::move(name), std::move(type_example), /*required=*/true});
  return std::move(*this);
}

OpSchema&& OpSchema::With(Trait trait) && {
  traits_ |= static_cast<uint32_t>(trait);
  return std::move(*this);
}

OpSchema&& OpSchema::Infer(InferFn infer) && {
  infer_ = std::move(infer);
  return std::move(*this);
}

const SlotSchema* OpSchema::FindInput(absl::string_view slot) const {
  return FindByName(inputs_, slot);
}

const SlotSchema* OpSchema::FindOutput(absl::string_view slot) const {
  return FindByName(outputs_, slot);
}

const AttrSchema* OpSchema::FindAttr(absl::string_view name) const {
  return FindByName(attrs_, name);
}

}  // namespace weft
