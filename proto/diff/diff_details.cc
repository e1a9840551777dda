#include "proto/diff/diff_details.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <initializer_list>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_op.h"
#include "proto/text/text_type.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using Details = std::vector<DifferenceDetail>;

constexpr absl::string_view kNone = "(none)";

struct Item {
  std::string name;   // as in program text
  std::string value;  // its text
  bool operator==(const Item& other) const { return name == other.name && value == other.value; }
};
using Items = std::vector<Item>;

// From "name=value" or from a message in braces.
Item MakeItem(absl::string_view name, std::string text) {
  Item item;
  AppendName(name, &item.name);
  const bool literal = text[0] == '{';
  item.value = literal ? std::move(text) : text.substr(item.name.size() + 1);
  return item;
}

template <typename Slots>
Items SlotItems(const Slots& slots) {
  Items items;
  for (const pb::OpDesc::Var& slot : slots) {
    std::string text;
    AppendSlot(
        slot, [](absl::string_view) { return absl::string_view(); }, &text);
    items.push_back(MakeItem(slot.parameter(), std::move(text)));
  }
  return items;
}

template <typename Attrs>
Items AttrItems(const Attrs& attrs) {
  Items items;
  for (const auto& attr : attrs) {
    std::string text;
    AppendAttr(attr, &text);
    items.push_back(MakeItem(attr.name(), std::move(text)));
  }
  return items;
}

// Names, each with the number of equal names before it.
std::vector<std::pair<std::string, int>> NumberedNames(const Items& items) {
  absl::flat_hash_map<std::string, int> counts;
  std::vector<std::pair<std::string, int>> names;
  for (const Item& item : items) names.emplace_back(item.name, counts[item.name]++);
  return names;
}

std::string JoinNames(const std::vector<std::pair<std::string, int>>& names) {
  return absl::StrJoin(names, ", ", [](std::string* out, const std::pair<std::string, int>& name) {
    out->append(name.first);
  });
}

void AddDetail(std::string what, absl::string_view a, absl::string_view b, Details* details) {
  if (a != b) details->push_back({std::move(what), std::string(a), std::string(b)});
}

// Compares values of equal names; the n-th with the n-th if a name is repeated.
void CompareItems(absl::string_view what, const Items& a, const Items& b, Details* details) {
  if (a == b) return;
  const auto a_names = NumberedNames(a), b_names = NumberedNames(b);
  std::map<std::pair<std::string, int>, size_t> in_a, in_b;
  for (size_t i = 0; i < a.size(); ++i) in_a.emplace(a_names[i], i);
  for (size_t i = 0; i < b.size(); ++i) in_b.emplace(b_names[i], i);

  std::vector<std::pair<std::string, int>> a_common, b_common;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto found = in_b.find(a_names[i]);
    const bool both = found != in_b.end();
    if (both) a_common.push_back(a_names[i]);
    AddDetail(absl::StrCat(what, " ", a[i].name), a[i].value,
              both ? absl::string_view(b[found->second].value) : kNone, details);
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (in_a.count(b_names[i]) != 0) {
      b_common.push_back(b_names[i]);
    } else {
      AddDetail(absl::StrCat(what, " ", b[i].name), kNone, b[i].value, details);
    }
  }
  if (a_common != b_common) {
    // Added even if both texts are equal, as those of repeated names may be.
    details->push_back({absl::StrCat(what, " order"), JoinNames(a_common), JoinNames(b_common)});
  }
}

// The content of an op, as text.
struct OpParts {
  std::string type;
  Items inputs;
  Items outputs;
  Items attrs;
  std::string extra;
};

// The message without some of its fields.
std::string RestText(const google::protobuf::Message& message, std::initializer_list<int> without) {
  std::string text;
  AppendLiteral(message, without, &text);
  return text;
}

OpParts PartsOf(const Op& op) {
  const pb::OpDesc desc = op.ToProto();
  OpParts parts;
  AppendName(desc.type(), &parts.type);
  parts.inputs = SlotItems(desc.inputs());
  parts.outputs = SlotItems(desc.outputs());
  parts.attrs = AttrItems(desc.attrs());
  parts.extra = RestText(desc, {pb::OpDesc::kTypeFieldNumber, pb::OpDesc::kInputsFieldNumber,
                                pb::OpDesc::kOutputsFieldNumber, pb::OpDesc::kAttrsFieldNumber});
  return parts;
}

void AppendToKey(const Items& items, std::string* key) {
  for (const Item& item : items) absl::StrAppend(key, item.name, "=", item.value, "\n");
  key->push_back('\n');
}

// A flag of a variable, by the name of its field.
absl::string_view FlagText(const pb::VarDesc& var, const std::string& field_name) {
  const auto* field = pb::VarDesc::descriptor()->FindFieldByName(field_name);
  const auto& reflection = *var.GetReflection();
  if (!reflection.HasField(var, field)) return kNone;
  return reflection.GetBool(var, field) ? "true" : "false";
}

// Values are versions, or whole pairs if they hold anything else.
Items VersionItems(const pb::OpVersionMap& versions) {
  Items items;
  for (const pb::OpVersionMap::OpVersionPair& pair : versions.pair()) {
    pb::OpVersionMap::OpVersionPair usual;
    usual.set_op_name(pair.op_name());
    usual.mutable_op_version()->set_version(pair.op_version().version());
    const bool is_usual = usual.SerializeAsString() == pair.SerializePartialAsString();
    Item item;
    AppendName(pair.op_name(), &item.name);
    item.value = is_usual ? absl::StrCat(pair.op_version().version()) : RestText(pair, {});
    items.push_back(std::move(item));
  }
  return items;
}

void CompareOpVersions(const pb::ProgramDesc& a, const pb::ProgramDesc& b, Details* details) {
  const auto present = [](const pb::ProgramDesc& program) {
    return program.has_op_version_map() ? absl::string_view("present") : kNone;
  };
  AddDetail("op_versions", present(a), present(b), details);
  CompareItems("op_version", VersionItems(a.op_version_map()), VersionItems(b.op_version_map()),
               details);
  const std::initializer_list<int> pairs = {pb::OpVersionMap::kPairFieldNumber};
  AddDetail("op_versions extra", RestText(a.op_version_map(), pairs),
            RestText(b.op_version_map(), pairs), details);
}

}  // namespace

Details CompareOps(const Op& a, const Op& b) {
  Details details;
  if (a.bytes() == b.bytes()) return details;
  const OpParts x = PartsOf(a), y = PartsOf(b);
  AddDetail("type", x.type, y.type, &details);
  CompareItems("input", x.inputs, y.inputs, &details);
  CompareItems("output", x.outputs, y.outputs, &details);
  CompareItems("attr", x.attrs, y.attrs, &details);
  AddDetail("extra", x.extra, y.extra, &details);
  return details;
}

OpKeys KeysOf(const Program& program, absl::Span<const OpId> ops, const std::vector<bool>& skip) {
  OpKeys keys;
  for (std::vector<uint64_t>* kind : {&keys.whole, &keys.type_and_outputs, &keys.type}) {
    kind->resize(ops.size());
  }
  std::string key;
  const auto hash = [&] { return XXH3_64bits(key.data(), key.size()); };
  for (size_t i = 0; i < ops.size(); ++i) {
    if (skip[i]) continue;
    const OpParts parts = PartsOf(program.op(ops[i]));
    key = absl::StrCat(parts.type, "\n");
    keys.type[i] = hash();
    AppendToKey(parts.outputs, &key);
    keys.type_and_outputs[i] = hash();
    AppendToKey(parts.inputs, &key);
    AppendToKey(parts.attrs, &key);
    key.append(parts.extra);
    keys.whole[i] = hash();
  }
  return keys;
}

std::vector<uint64_t> ByteKeysOf(const Program& program, absl::Span<const OpId> ops) {
  std::vector<uint64_t> keys;
  keys.reserve(ops.size());
  for (OpId id : ops) {
    const absl::string_view bytes = program.op(id).bytes();
    keys.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  }
  return keys;
}

Details CompareVars(const Var& var_a, const Var& var_b) {
  Details details;
  if (var_a.bytes() == var_b.bytes()) return details;
  const pb::VarDesc a = var_a.ToProto(), b = var_b.ToProto();
  std::string a_type, b_type;
  AppendVarType(a.type(), TextDetail::kExact, &a_type);
  AppendVarType(b.type(), TextDetail::kExact, &b_type);
  AddDetail("type", a_type, b_type, &details);
  for (const char* field : {"is_parameter", "persistable", "stop_gradient", "need_check_feed"}) {
    AddDetail(std::string(absl::StripPrefix(field, "is_")), FlagText(a, field), FlagText(b, field),
              &details);
  }
  CompareItems("attr", AttrItems(a.attrs()), AttrItems(b.attrs()), &details);
  const std::initializer_list<int> known = {
      pb::VarDesc::kNameFieldNumber,        pb::VarDesc::kTypeFieldNumber,
      pb::VarDesc::kPersistableFieldNumber, pb::VarDesc::kNeedCheckFeedFieldNumber,
      pb::VarDesc::kIsParameterFieldNumber, pb::VarDesc::kStopGradientFieldNumber,
      pb::VarDesc::kAttrsFieldNumber};
  AddDetail("extra", RestText(a, known), RestText(b, known), &details);
  return details;
}

Details CompareBlocks(const pb::BlockDesc& a, const pb::BlockDesc& b) {
  Details details;
  AddDetail("parent", absl::StrCat(a.parent_idx()), absl::StrCat(b.parent_idx()), &details);
  const auto forward = [](const pb::BlockDesc& desc) {
    return desc.has_forward_block_idx() ? absl::StrCat(desc.forward_block_idx())
                                        : std::string(kNone);
  };
  AddDetail("forward", forward(a), forward(b), &details);
  const std::initializer_list<int> compared = {pb::BlockDesc::kIdxFieldNumber,
                                               pb::BlockDesc::kParentIdxFieldNumber,
                                               pb::BlockDesc::kForwardBlockIdxFieldNumber};
  AddDetail("extra", RestText(a, compared), RestText(b, compared), &details);
  return details;
}

Details ComparePrograms(const pb::ProgramDesc& a, const pb::ProgramDesc& b) {
  Details details;
  const auto version = [](const pb::ProgramDesc& program) {
    return program.has_version() ? RestText(program.version(), {}) : std::string(kNone);
  };
  AddDetail("version", version(a), version(b), &details);
  CompareOpVersions(a, b, &details);
  const std::initializer_list<int> compared = {pb::ProgramDesc::kVersionFieldNumber,
                                               pb::ProgramDesc::kOpVersionMapFieldNumber};
  AddDetail("extra", RestText(a, compared), RestText(b, compared), &details);
  return details;
}

}  // namespace weft
