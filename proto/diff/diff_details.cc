#include "proto/diff/diff_details.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/text/text_attr.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_op.h"
#include "proto/text/text_type.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

using Details = std::vector<DifferenceDetail>;

constexpr absl::string_view kNone = "(none)";

// --- Named values, the common form of slots and attributes --------------------------------------

struct Item {
  std::string name;   // as in program text
  std::string value;  // its text
  bool operator==(const Item& other) const { return name == other.name && value == other.value; }
};
using Items = std::vector<Item>;

// From the text of "name=value", or, with `literal`, of a message in braces.
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

// Names, each with how many of the same stand before it.
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

// Values of the same name are compared, the n-th with the n-th where a name is repeated.
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
    // Added as it is: repeated names may read the same in both orders.
    details->push_back({absl::StrCat(what, " order"), JoinNames(a_common), JoinNames(b_common)});
  }
}

// --- Ops ----------------------------------------------------------------------------------------

// All that an op says, as text.
struct OpParts {
  std::string type;
  Items inputs;
  Items outputs;
  Items attrs;
  std::string extra;
};

std::string RestText(const google::protobuf::Message& rest) {
  std::string text;
  AppendLiteral(rest, {}, &text);
  return text;
}

OpParts PartsOf(const Op& op) {
  pb::OpDesc desc = op.ToProto();
  OpParts parts;
  AppendName(desc.type(), &parts.type);
  parts.inputs = SlotItems(desc.inputs());
  parts.outputs = SlotItems(desc.outputs());
  parts.attrs = AttrItems(desc.attrs());
  desc.clear_type();
  desc.clear_inputs();
  desc.clear_outputs();
  desc.clear_attrs();
  parts.extra = RestText(desc);
  return parts;
}

void AppendToKey(const Items& items, std::string* key) {
  for (const Item& item : items) absl::StrAppend(key, item.name, "=", item.value, "\n");
  key->push_back('\n');
}

// --- Variables ----------------------------------------------------------------------------------

absl::string_view FlagText(bool present, bool value) {
  return !present ? kNone : value ? "true" : "false";
}

// --- Programs -----------------------------------------------------------------------------------

// The version alone where a pair has nothing else, the whole pair otherwise.
Items VersionItems(const pb::OpVersionMap& versions) {
  Items items;
  for (const pb::OpVersionMap::OpVersionPair& pair : versions.pair()) {
    pb::OpVersionMap::OpVersionPair usual;
    usual.set_op_name(pair.op_name());
    usual.mutable_op_version()->set_version(pair.op_version().version());
    const bool is_usual = usual.SerializeAsString() == pair.SerializePartialAsString();
    Item item;
    AppendName(pair.op_name(), &item.name);
    item.value = is_usual ? absl::StrCat(pair.op_version().version()) : RestText(pair);
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
  const auto extra = [](pb::OpVersionMap versions) {
    versions.clear_pair();
    return RestText(versions);
  };
  AddDetail("op_versions extra", extra(a.op_version_map()), extra(b.op_version_map()), details);
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
  pb::VarDesc a = var_a.ToProto(), b = var_b.ToProto();
  std::string a_type, b_type;
  AppendVarType(a.type(), TextDetail::kExact, &a_type);
  AppendVarType(b.type(), TextDetail::kExact, &b_type);
  AddDetail("type", a_type, b_type, &details);
  AddDetail("parameter", FlagText(a.has_is_parameter(), a.is_parameter()),
            FlagText(b.has_is_parameter(), b.is_parameter()), &details);
  AddDetail("persistable", FlagText(a.has_persistable(), a.persistable()),
            FlagText(b.has_persistable(), b.persistable()), &details);
  AddDetail("stop_gradient", FlagText(a.has_stop_gradient(), a.stop_gradient()),
            FlagText(b.has_stop_gradient(), b.stop_gradient()), &details);
  AddDetail("need_check_feed", FlagText(a.has_need_check_feed(), a.need_check_feed()),
            FlagText(b.has_need_check_feed(), b.need_check_feed()), &details);
  CompareItems("attr", AttrItems(a.attrs()), AttrItems(b.attrs()), &details);
  for (pb::VarDesc* var : {&a, &b}) {
    pb::VarDesc rest;
    rest.mutable_unknown_fields()->Swap(var->mutable_unknown_fields());
    *var = rest;
  }
  AddDetail("extra", RestText(a), RestText(b), &details);
  return details;
}

Details CompareBlocks(pb::BlockDesc a, pb::BlockDesc b) {
  Details details;
  AddDetail("parent", absl::StrCat(a.parent_idx()), absl::StrCat(b.parent_idx()), &details);
  const auto forward = [](const pb::BlockDesc& desc) {
    return desc.has_forward_block_idx() ? absl::StrCat(desc.forward_block_idx())
                                        : std::string(kNone);
  };
  AddDetail("forward", forward(a), forward(b), &details);
  for (pb::BlockDesc* desc : {&a, &b}) {
    desc->clear_idx();
    desc->clear_parent_idx();
    desc->clear_forward_block_idx();
  }
  AddDetail("extra", RestText(a), RestText(b), &details);
  return details;
}

Details ComparePrograms(pb::ProgramDesc a, pb::ProgramDesc b) {
  Details details;
  const auto version = [](const pb::ProgramDesc& program) {
    return program.has_version() ? RestText(program.version()) : std::string(kNone);
  };
  AddDetail("version", version(a), version(b), &details);
  CompareOpVersions(a, b, &details);
  for (pb::ProgramDesc* program : {&a, &b}) {
    program->clear_version();
    program->clear_op_version_map();
  }
  AddDetail("extra", RestText(a), RestText(b), &details);
  return details;
}

}  // namespace weft
