#include "ops/schema/op_schema.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;

// Schemas are small: a scan is quicker than a map.
template <typename T>
const T* FindByName(const std::vector<T>& items, absl::string_view name) {
  for (const T& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "OpSchema: %s\n", message.c_str());
  std::abort();
}

// The text of one slot, "Ids*?": see OpSchema::In.
SlotSchema ParseSlot(absl::string_view text) {
  SlotSchema slot;
  size_t at = text.find_first_of("*?~!^+-=&{");
  slot.name = std::string(text.substr(0, at));
  for (; at < text.size(); ++at) {
    switch (text[at]) {
      case '*':
        slot.duplicable = true;
        break;
      case '?':
        slot.optional = true;
        break;
      case '~':
        slot.loose_type = true;
        break;
      case '!':
        slot.unwritten = true;
        break;
      case '^':
        slot.since = kPaddle3;
        break;
      case '+':
        slot.since = kPaddle2;
        break;
      case '-':
        slot.until = kPaddle2;
        break;
      case '=':
        slot.in_place_of = std::string(text.substr(at + 1));
        return slot;
      case '&':
        slot.memory_of = std::string(text.substr(at + 1));
        return slot;
      case '{':
        slot.optional = true;
        slot.attrs = absl::StrSplit(absl::StripSuffix(text.substr(at + 1), "}"), ' ');
        return slot;
      default:
        Die(absl::StrCat("not a slot: ", text));
    }
  }
  return slot;
}

std::vector<absl::string_view> SplitList(absl::string_view slots) {
  return absl::StrSplit(slots, ", ", absl::SkipEmpty());
}

// Whether nothing but a rule says how the op treats the batch.
bool NeedsBatchRule(const OpSchema& schema) {
  constexpr Trait kOtherwise[] = {Trait::kElementwise, Trait::kCollective, Trait::kRingSetup,
                                  Trait::kStreamSync,  Trait::kBranch,     Trait::kLoop,
                                  Trait::kBlockGrad};
  const auto has = [&](Trait trait) { return schema.Has(trait); };
  return absl::c_none_of(kOtherwise, has) && !schema.outputs().empty() &&
         !absl::EndsWith(schema.type(), "_grad");
}

}  // namespace

pb::AttrType AttrTypeOf(const AttrValue& value) {
  static constexpr pb::AttrType kTypes[] = {
      // in the order of the alternatives
      pb::INT,   pb::LONG,   pb::FLOAT,    pb::FLOAT64,  pb::BOOLEAN, pb::STRING,  pb::INTS,
      pb::LONGS, pb::FLOATS, pb::FLOAT64S, pb::BOOLEANS, pb::STRINGS, pb::SCALARS, pb::BLOCK};
  static_assert(std::size(kTypes) == std::variant_size_v<AttrValue>);
  return kTypes[value.index()];
}

namespace range {

AttrRange AtLeast(double least) {
  AttrRange range;
  range.least = least;
  return range;
}

AttrRange AtMost(double most) {
  AttrRange range;
  range.most = most;
  return range;
}

AttrRange Above(double limit) {
  AttrRange range = AtLeast(limit);
  range.above_least = true;
  return range;
}

AttrRange Between(double least, double most) {
  AttrRange range = AtLeast(least);
  range.most = most;
  return range;
}

AttrRange FromUpTo(double least, double limit) {
  AttrRange range = Between(least, limit);
  range.below_most = true;
  return range;
}

AttrRange OneOf(std::vector<std::string> texts) {
  AttrRange range;
  range.texts = std::move(texts);
  return range;
}

}  // namespace range

OpSchema::OpSchema(std::string type, absl::string_view slots) : type_(std::move(type)) {
  const std::vector<absl::string_view> sides = absl::StrSplit(slots, "-> ");
  if (sides.size() > 2) Die(absl::StrCat("more than one arrow: ", slots));
  std::move(*this).In(absl::StripSuffix(sides[0], " "));
  if (sides.size() == 2) std::move(*this).Out(sides[1]);
}

OpSchema&& OpSchema::In(absl::string_view slots) && {
  for (absl::string_view slot : SplitList(slots)) inputs_.push_back(ParseSlot(slot));
  return std::move(*this);
}

OpSchema&& OpSchema::Out(absl::string_view slots) && {
  for (absl::string_view slot : SplitList(slots)) outputs_.push_back(ParseSlot(slot));
  return std::move(*this);
}

OpSchema&& OpSchema::In(SlotSchema slot) && {
  inputs_.push_back(std::move(slot));
  return std::move(*this);
}

OpSchema&& OpSchema::Out(SlotSchema slot) && {
  outputs_.push_back(std::move(slot));
  return std::move(*this);
}

OpSchema&& OpSchema::LossScaleIn(absl::string_view slot) && {
  inputs_.push_back(ParseSlot(slot));
  inputs_.back().is_loss_scale = true;
  return std::move(*this);
}

OpSchema&& OpSchema::Attr(AttrSchema attr) && {
  attrs_.push_back(std::move(attr));
  return std::move(*this);
}

OpSchema&& OpSchema::Attr(std::string name, AttrValue default_value, AttrRange range) && {
  attrs_.push_back({std::move(name), std::move(default_value), /*required=*/false, /*since=*/0,
                    std::move(range)});
  return std::move(*this);
}

OpSchema&& OpSchema::RequiredAttr(std::string name, AttrValue type_example, AttrRange range) && {
  attrs_.push_back(
      {std::move(name), std::move(type_example), /*required=*/true, /*since=*/0, std::move(range)});
  return std::move(*this);
}

OpSchema&& OpSchema::AttrSincePaddle3(std::string name, AttrValue default_value) && {
  attrs_.push_back({std::move(name), std::move(default_value), /*required=*/false,
                    /*since=*/kPaddle3,
                    /*range=*/{}});
  return std::move(*this);
}

OpSchema&& OpSchema::Since(int64_t version, std::string behavior) && {
  behaviors_.emplace_back(std::move(behavior), version);
  return std::move(*this);
}

OpSchema&& OpSchema::Infer(InferFn infer) && {
  infer_ = std::move(infer);
  return std::move(*this);
}

OpSchema&& OpSchema::Images(std::string attr, std::vector<std::string> slots,
                            std::pair<std::string, std::string> channels_last) && {
  image_attr_ = std::move(attr);
  image_slots_ = std::move(slots);
  channels_last_ = std::move(channels_last);
  return std::move(*this);
}

OpSchema&& OpSchema::Batch(BatchRule rule) && {
  batch_rule_ = std::move(rule);
  return std::move(*this);
}

OpSchema&& OpSchema::Algebra(weft::Algebra algebra) && {
  algebra_ = algebra;
  return std::move(*this);
}

OpSchema&& OpSchema::Rows(RowsRule rows) && {
  rows_ = rows;
  return std::move(*this);
}

OpSchema&& OpSchema::Work(WorkKind work) && {
  work_ = work;
  return std::move(*this);
}

OpSchema&& OpSchema::PostOp(PostOpKind post_op) && {
  post_op_ = post_op;
  return std::move(*this);
}

OpSchema&& OpSchema::Pir(std::string op, std::string grad) && {
  pir_.push_back({std::move(op), std::move(grad)});
  return std::move(*this);
}

bool OpSchema::IsImage(absl::string_view slot) const {
  return absl::c_linear_search(image_slots_, absl::StripSuffix(slot, "@GRAD"));
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

void OpSchemaTable::Add(OpSchema schema) {
  const std::string type = schema.type();
  const BatchRule& rule = schema.batch_rule();
  if (rule.run == nullptr && rule.why_none.empty() && NeedsBatchRule(schema)) {
    Die(absl::StrCat("op type ", type,
                     ": expected .Batch(a rule), or .Batch(batch::Unrelated(why))"));
  }
  if (!schemas_.insert({type, std::move(schema)}).second) Die("two schemas for op type " + type);
}

const OpSchema* OpSchemaTable::Find(absl::string_view type) const {
  const auto it = schemas_.find(type);
  return it == schemas_.end() ? nullptr : &it->second;
}

std::vector<const OpSchema*> OpSchemaTable::All() const {
  std::vector<const OpSchema*> all;
  all.reserve(schemas_.size());
  for (const auto& [type, schema] : schemas_) all.push_back(&schema);
  std::sort(all.begin(), all.end(),
            [](const OpSchema* a, const OpSchema* b) { return a->type() < b->type(); });
  return all;
}

}  // namespace weft
