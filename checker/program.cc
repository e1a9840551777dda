#include "checker/program.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace checker {
namespace {

constexpr uint64_t kVersionField = 4, kSettingField = 1001;

uint64_t VersionIn(std::string_view bytes) {
  uint64_t version = 0;
  for (Fields fields(bytes); fields.Next();) {
    if (fields.number == 1) version = fields.Varint();
  }
  return version;
}

void ParseTensor(std::string_view bytes, Decl* decl) {
  Fields tensor(bytes);
  decl->elements = 1;
  const auto add = [decl](uint64_t dim) {
    const auto size = static_cast<int64_t>(dim);
    decl->dims.push_back(size);
    const bool is_known = size > 0 && decl->elements > 0 &&
                          decl->elements <= std::numeric_limits<int64_t>::max() / size;
    decl->elements = is_known ? decl->elements * size : -1;
  };
  while (tensor.Next()) {
    if (tensor.number == 1) decl->dtype = static_cast<int>(tensor.Varint());
    if (tensor.number != 2) continue;
    add(tensor.Varint());  // no version of Paddle packs them
  }
}

// Sets what must not be there twice: readers of the format take the last.
template <typename T>
void Once(T value, bool* is_set, T* field) {
  Expect(!*is_set, "a field is there twice");
  *is_set = true;
  *field = value;
}

using Named = std::vector<std::pair<std::string_view, std::string_view>>;  // names, values

// Paddle writes some attributes twice, with one value.
void ExpectOneOfEachName(Named parts, const char* kind) {
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) {
    Expect(parts[i - 1].first != parts[i].first ||
               (!parts[i].second.empty() && parts[i - 1].second == parts[i].second),
           kind, " ", parts[i].first, " is there twice");
  }
}

Named NamesOf(const std::vector<Slot>& slots) {
  Named names;
  for (const Slot& slot : slots) names.emplace_back(slot.name, std::string_view());
  return names;
}

// The fields of an op in an order of their own, without what says where it was made.
std::vector<std::string_view> SortedFields(std::string_view op) {
  std::vector<std::string_view> sorted;
  for (Fields fields(op); fields.Next();) {
    const bool is_attr = fields.number == 4;
    const std::string_view name = is_attr ? ParseAttr(fields.Bytes()).name : std::string_view();
    if (name != "op_callstack" && name != "op_namescope") sorted.push_back(fields.whole);
  }
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

}  // namespace

bool IsSameOp(std::string_view a, std::string_view b) {
  return a == b || SortedFields(a) == SortedFields(b);
}

Decl ParseDecl(std::string_view bytes) {
  Decl decl;
  decl.bytes = bytes;
  bool has_name = false, has_type = false, has_flag = false, has_mark = false, has_role = false;
  std::string_view type;
  for (Fields fields(bytes); fields.Next();) {
    if (fields.number == 1) Once(fields.Bytes(), &has_name, &decl.name);
    if (fields.number == 2) Once(fields.Bytes(), &has_type, &type);
    if (fields.number == 3) Once(fields.Varint() != 0, &has_flag, &decl.persistable);
    if (fields.number == 4) Once(fields.Varint() != 0, &has_mark, &decl.is_data);
    if (fields.number == 5) Once(fields.Varint() != 0, &has_role, &decl.is_parameter);
  }
  for (Fields fields(type); fields.Next();) {
    if (fields.number == 1) decl.type = static_cast<int>(fields.Varint());
  }
  std::string_view tensor;
  bool has_tensor = false;
  for (Fields fields(type); fields.Next();) {
    const uint64_t number = decl.type == kRows ? 2 : decl.type == kArray ? 4 : 3;
    if (fields.number != number) continue;
    if (decl.type == kRows) Once(fields.Bytes(), &has_tensor, &tensor);
    if (decl.type == kRows) continue;
    for (Fields parts(fields.Bytes()); parts.Next();) {
      if (parts.number == 1) Once(parts.Bytes(), &has_tensor, &tensor);
    }
  }
  if (has_tensor) ParseTensor(tensor, &decl);
  return decl;
}

// A value counts only in the field that belongs to the type.
Attr ParseAttr(std::string_view bytes) {
  Attr attr;
  for (Fields fields(bytes); fields.Next();) {
    if (fields.number == 1) attr.name = fields.Bytes();
    if (fields.number == 2) attr.type = static_cast<int>(fields.Varint());
  }
  for (Fields fields(bytes); fields.Next();) {
    const uint64_t field = fields.number;
    const auto is = [&](int type, uint64_t number) { return attr.type == type && field == number; };
    if (is(kIntAttr, 3) || is(kBoolAttr, 10) || is(kBlockAttr, 12) || is(kLongAttr, 13)) {
      attr.number = fields.Varint();
    } else if (is(kFloatAttr, 4)) {
      attr.real = fields.Float();
    } else if (is(kStringAttr, 5)) {
      attr.text = fields.Bytes();
    } else if (is(kStringsAttr, 8)) {
      attr.texts.push_back(fields.Bytes());
    } else if (is(kIntsAttr, 6) || is(kBlocksAttr, 14) || is(kLongsAttr, 15)) {
      attr.numbers.push_back(fields.Varint());
    }
  }
  return attr;
}

void Op::Parse(std::string_view op) {
  bytes = op;
  type = {};
  inputs.clear(), outputs.clear(), args.clear(), attrs.clear();
  bool has_type = false;
  for (Fields fields(op); fields.Next();) {
    if (fields.number == 3) Once(fields.Bytes(), &has_type, &type);
    if (fields.number == 4) {
      AttrRef attr;
      attr.bytes = fields.Bytes();
      bool has_name = false, has_attr_type = false;
      for (Fields parts(attr.bytes); parts.Next();) {
        if (parts.number == 1) Once(parts.Bytes(), &has_name, &attr.name);
        if (parts.number == 2) Once(static_cast<int>(parts.Varint()), &has_attr_type, &attr.type);
      }
      attrs.push_back(attr);
    }
    if (fields.number != 1 && fields.number != 2) continue;
    Slot slot;
    slot.begin = args.size();
    bool has_name = false;
    for (Fields parts(fields.Bytes()); parts.Next();) {
      if (parts.number == 1) Once(parts.Bytes(), &has_name, &slot.name);
      if (parts.number == 2) args.push_back(parts.Bytes());
    }
    slot.end = args.size();
    (fields.number == 1 ? inputs : outputs).push_back(slot);
  }
  Named named;
  named.reserve(attrs.size());
  for (const AttrRef& attr : attrs) named.emplace_back(attr.name, attr.bytes);
  ExpectOneOfEachName(std::move(named), "attribute");
  ExpectOneOfEachName(NamesOf(inputs), "input slot");
  ExpectOneOfEachName(NamesOf(outputs), "output slot");
}

bool Op::Find(std::string_view name, Attr* attr) const {
  for (const AttrRef& candidate : attrs) {
    if (candidate.name != name) continue;
    *attr = ParseAttr(candidate.bytes);
    return true;
  }
  return false;
}

Program ParseProgram(std::string_view file) {
  Program program;
  for (Fields fields(file); fields.Next();) {
    if (fields.number == kSettingField) {
      program.setting = fields.Bytes();
    } else if (fields.number != 1) {
      if (fields.number == kVersionField) program.version = VersionIn(fields.Bytes());
      program.other_fields.push_back(fields.whole);
    } else {
      Block block;
      block.bytes = fields.Bytes();
      uint64_t index = 0;
      for (Fields parts(block.bytes); parts.Next();) {
        if (parts.number == 1) index = parts.Varint();
        if (parts.number == Parts::kDecls || parts.number == Parts::kOps) continue;
        block.other_fields.push_back(parts.whole);
      }
      Expect(index == program.blocks.size(), "blocks are not in order");
      program.blocks.push_back(std::move(block));
    }
  }
  Expect(!program.blocks.empty(), "the file has no block: it is no program");
  return program;
}

bool Parts::Next(std::string_view* part) {
  while (fields_.Next()) {
    if (fields_.number != kind_) continue;
    *part = fields_.Bytes();
    return true;
  }
  return false;
}

}  // namespace checker
