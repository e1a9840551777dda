#include "ops/schema/op_attrs.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "OpAttrs: %s\n", message.c_str());
  std::abort();
}

std::string TypeName(pb::AttrType type) { return pb::AttrType_Name(type); }

template <typename To, typename From>
bool Fits(From value) {
  return value >= std::numeric_limits<To>::lowest() && value <= std::numeric_limits<To>::max();
}

// Reads an attribute as the type of the alternative that it is called with. Empty if the attribute
// has a type that does not convert, or a value that does not fit.
class Converter {
 public:
  explicit Converter(const pb::OpDesc::Attr& attr) : attr_(attr) {}

  absl::optional<AttrValue> operator()(int32_t) const { return Integer<int32_t>(); }
  absl::optional<AttrValue> operator()(int64_t) const { return Integer<int64_t>(); }
  absl::optional<AttrValue> operator()(float) const {
    if (attr_.type() == pb::FLOAT) return AttrValue(attr_.f());
    if (attr_.type() != pb::FLOAT64 || !Fits<float>(attr_.float64())) return absl::nullopt;
    const auto narrowed = static_cast<float>(attr_.float64());
    if (narrowed != attr_.float64()) return absl::nullopt;
    return AttrValue(narrowed);
  }
  absl::optional<AttrValue> operator()(double) const {
    if (attr_.type() == pb::FLOAT64) return AttrValue(attr_.float64());
    if (attr_.type() == pb::FLOAT) return AttrValue(static_cast<double>(attr_.f()));
    return absl::nullopt;
  }
  // Early versions of Paddle wrote 0 and 1, and single numbers where later ones have lists.
  absl::optional<AttrValue> operator()(bool) const {
    if (attr_.type() == pb::INT && (attr_.i() == 0 || attr_.i() == 1)) return attr_.i() == 1;
    return If(pb::BOOLEAN, attr_.b());
  }
  absl::optional<AttrValue> operator()(const std::string&) const {
    return If(pb::STRING, attr_.s());
  }
  absl::optional<AttrValue> operator()(const std::vector<int32_t>&) const {
    return Integers<int32_t>();
  }
  absl::optional<AttrValue> operator()(const std::vector<int64_t>&) const {
    return Integers<int64_t>();
  }
  absl::optional<AttrValue> operator()(const std::vector<float>&) const {
    if (attr_.type() == pb::FLOAT) return AttrValue(std::vector<float>{attr_.f()});
    return If(pb::FLOATS, Copy<float>(attr_.floats()));
  }
  absl::optional<AttrValue> operator()(const std::vector<double>&) const {
    if (attr_.type() == pb::FLOAT64S) return Copy<double>(attr_.float64s());
    if (attr_.type() == pb::FLOATS) return Copy<double>(attr_.floats());
    return absl::nullopt;
  }
  absl::optional<AttrValue> operator()(const std::vector<bool>&) const {
    return If(pb::BOOLEANS, Copy<bool>(attr_.bools()));
  }
  absl::optional<AttrValue> operator()(const std::vector<std::string>&) const {
    return If(pb::STRINGS, Copy<std::string>(attr_.strings()));
  }
  absl::optional<AttrValue> operator()(const std::vector<Scalar>&) const {
    if (attr_.type() != pb::SCALARS) return absl::nullopt;
    std::vector<Scalar> values;
    for (const pb::Scalar& scalar : attr_.scalars()) {
      const absl::optional<Scalar> value = Number(scalar);
      if (!value.has_value()) return absl::nullopt;
      values.push_back(*value);
    }
    return AttrValue(std::move(values));
  }
  absl::optional<AttrValue> operator()(BlockRef) const {
    return If(pb::BLOCK, BlockRef{attr_.block_idx()});
  }

 private:
  static absl::optional<Scalar> Number(const pb::Scalar& scalar) {
    switch (scalar.type()) {
      case pb::Scalar::BOOLEAN:
        return Scalar(scalar.b());
      case pb::Scalar::LONG:
        return Scalar(int64_t{scalar.i()});
      case pb::Scalar::FLOAT64:
        return Scalar(scalar.r());
      default:
        return absl::nullopt;
    }
  }

  absl::optional<AttrValue> If(pb::AttrType type, AttrValue value) const {
    if (attr_.type() != type) return absl::nullopt;
    return value;
  }

  template <typename T>
  absl::optional<AttrValue> Integer() const {
    if (attr_.type() != pb::INT && attr_.type() != pb::LONG) return absl::nullopt;
    const int64_t value = attr_.type() == pb::INT ? attr_.i() : attr_.l();
    if (!Fits<T>(value)) return absl::nullopt;
    return AttrValue(static_cast<T>(value));
  }

  template <typename T>
  absl::optional<AttrValue> Integers() const {
    if (attr_.type() == pb::INTS) return Copy<T>(attr_.ints());
    if (attr_.type() == pb::SCALARS) return IntegersOfScalars<T>();
    if (attr_.type() != pb::LONGS) return absl::nullopt;
    for (int64_t value : attr_.longs()) {
      if (!Fits<T>(value)) return absl::nullopt;
    }
    return Copy<T>(attr_.longs());
  }

  template <typename T>
  absl::optional<AttrValue> IntegersOfScalars() const {
    std::vector<T> values;
    for (const pb::Scalar& scalar : attr_.scalars()) {
      if (scalar.type() != pb::Scalar::LONG || !Fits<T>(scalar.i())) return absl::nullopt;
      values.push_back(static_cast<T>(scalar.i()));
    }
    return AttrValue(std::move(values));
  }

  template <typename T, typename Repeated>
  static AttrValue Copy(const Repeated& values) {
    return AttrValue(std::vector<T>(values.begin(), values.end()));
  }

  const pb::OpDesc::Attr& attr_;
};

// The type, with the value if the value may not fit: "LONG 5000000000".
std::string Describe(const pb::OpDesc::Attr& attr) {
  // The decoded attribute drops the number of a type that this version does not have.
  if (!attr.has_type()) return "an unknown type";
  const std::string type = TypeName(attr.type());
  if (attr.type() == pb::LONG) return absl::StrCat(type, " ", attr.l());
  if (attr.type() == pb::FLOAT64) return absl::StrCat(type, " ", attr.float64());
  return type;
}

absl::Status WrongType(const Op& op, const AttrSchema& schema, const pb::OpDesc::Attr& attr) {
  return absl::InvalidArgumentError(
      absl::StrCat(op.DebugName(), " attribute ", schema.name, ": expected ",
                   TypeName(AttrTypeOf(schema.default_value)), ", found ", Describe(attr)));
}

// What is outside the range, as text; none: nothing.
class RangeChecker {
 public:
  explicit RangeChecker(const AttrRange& range) : range_(range) {}

  absl::optional<std::string> operator()(bool) const { return absl::nullopt; }
  absl::optional<std::string> operator()(BlockRef) const { return absl::nullopt; }
  absl::optional<std::string> operator()(const std::string& text) const {
    if (range_.texts.empty() || absl::c_linear_search(range_.texts, text)) return absl::nullopt;
    return text;
  }
  template <typename T>
  absl::optional<std::string> operator()(const std::vector<T>& values) const {
    for (const T& value : values) {
      if (auto outside = (*this)(value)) return outside;
    }
    return absl::nullopt;
  }
  absl::optional<std::string> operator()(const Scalar& scalar) const {
    return std::visit(*this, scalar);
  }
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, bool> = true>
  absl::optional<std::string> operator()(T value) const {
    const auto number = static_cast<double>(value);
    const bool is_limited = std::isfinite(range_.least) || std::isfinite(range_.most);
    const bool above = range_.above_least ? number > range_.least : number >= range_.least;
    const bool below = range_.below_most ? number < range_.most : number <= range_.most;
    if (!is_limited || (above && below)) return absl::nullopt;
    return absl::StrCat(value);
  }

 private:
  const AttrRange& range_;
};

// "0 to 1", "more than 0", "max or avg"
std::string ToString(const AttrRange& range) {
  if (!range.texts.empty()) {
    const absl::Span<const std::string> all(range.texts);
    const std::string& last = all.back();
    if (all.size() == 1) return last;
    return absl::StrCat(absl::StrJoin(all.first(all.size() - 1), ", "), " or ", last);
  }
  const auto text = [](double limit) {
    const bool is_whole = limit == std::trunc(limit) && std::fabs(limit) < 0x1p53;
    return is_whole ? absl::StrCat(static_cast<int64_t>(limit)) : absl::StrCat(limit);
  };
  const std::string least = text(range.least), most = text(range.most);
  if (!std::isfinite(range.least)) return absl::StrCat("at most ", most);
  if (range.above_least) return absl::StrCat("more than ", least);
  if (!std::isfinite(range.most)) return absl::StrCat(least, " or more");
  if (range.below_most) return absl::StrCat(least, " or more and below ", most);
  return absl::StrCat(least, " to ", most);
}

struct ScalarWriter {
  pb::Scalar* scalar;

  void operator()(bool value) const {
    scalar->set_type(pb::Scalar::BOOLEAN);
    scalar->set_b(value);
  }
  void operator()(int64_t value) const {
    scalar->set_type(pb::Scalar::LONG);
    scalar->set_i(value);
  }
  void operator()(double value) const {
    scalar->set_type(pb::Scalar::FLOAT64);
    scalar->set_r(value);
  }
};

struct AttrWriter {
  pb::OpDesc::Attr* attr;

  void operator()(int32_t value) const { attr->set_i(value); }
  void operator()(int64_t value) const { attr->set_l(value); }
  void operator()(float value) const { attr->set_f(value); }
  void operator()(double value) const { attr->set_float64(value); }
  void operator()(bool value) const { attr->set_b(value); }
  void operator()(const std::string& value) const { attr->set_s(value); }
  void operator()(const std::vector<int32_t>& values) const { Copy(values, attr->mutable_ints()); }
  void operator()(const std::vector<int64_t>& values) const { Copy(values, attr->mutable_longs()); }
  void operator()(const std::vector<float>& values) const { Copy(values, attr->mutable_floats()); }
  void operator()(const std::vector<double>& values) const {
    Copy(values, attr->mutable_float64s());
  }
  void operator()(const std::vector<bool>& values) const { Copy(values, attr->mutable_bools()); }
  void operator()(const std::vector<std::string>& values) const {
    Copy(values, attr->mutable_strings());
  }
  void operator()(const std::vector<Scalar>& values) const {
    for (const Scalar& value : values) std::visit(ScalarWriter{attr->add_scalars()}, value);
  }
  void operator()(BlockRef value) const { attr->set_block_idx(value.idx); }

 private:
  template <typename Values, typename Repeated>
  static void Copy(const Values& values, Repeated* repeated) {
    for (const auto& value : values) *repeated->Add() = value;
  }
};

}  // namespace

absl::StatusOr<OpAttrs> OpAttrs::Decode(const Op& op, const OpSchema& schema) {
  // The position of each attribute of the schema among the op's. The last of repeated ones counts.
  const std::vector<OpSignature::Attr>& written = op.signature().attrs;
  constexpr size_t kMissing = ~size_t{0};
  absl::InlinedVector<size_t, 16> position(schema.attrs().size(), kMissing);
  absl::InlinedVector<const AttrSchema*, 32> schema_of(written.size());
  for (size_t i = 0; i < written.size(); ++i) {
    schema_of[i] = schema.FindAttr(op.program().name(written[i].name));
    if (schema_of[i] != nullptr) position[schema_of[i] - schema.attrs().data()] = i;
  }

  OpAttrs attrs;
  attrs.schema_ = &schema;
  attrs.version_ = op.program().version();
  attrs.values_.resize(schema.attrs().size());
  absl::Status status;
  pb::OpDesc::Attr attr;
  op.ForEachAttr([&](size_t i, absl::string_view bytes) {
    if (schema_of[i] == nullptr) return true;
    const size_t index = schema_of[i] - schema.attrs().data();
    if (position[index] != i) return true;
    // Partial: the number of a type that this version does not have counts as a missing field.
    attr.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
    absl::optional<AttrValue> value;
    if (attr.has_type()) value = std::visit(Converter(attr), schema_of[i]->default_value);
    if (value.has_value()) {
      attrs.values_[index] = *std::move(value);
    } else {
      status = WrongType(op, *schema_of[i], attr);
    }
    return status.ok();
  });
  if (!status.ok()) return status;

  for (size_t index = 0; index < position.size(); ++index) {
    const AttrSchema& missing = schema.attrs()[index];
    if (position[index] != kMissing) continue;
    if (missing.required) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.DebugName(), " attribute ", missing.name, ": expected ",
                       TypeName(AttrTypeOf(missing.default_value)), ", found none"));
    }
    attrs.values_[index] = missing.default_value;
  }
  return attrs;
}

OpAttrs OpAttrs::Make(const OpSchema& schema, std::vector<std::pair<std::string, AttrValue>> values,
                      int64_t version) {
  OpAttrs attrs;
  attrs.schema_ = &schema;
  attrs.version_ = version;
  for (const AttrSchema& attr : schema.attrs()) attrs.values_.push_back(attr.default_value);
  for (auto& entry : values) {
    const auto& [name, value] = entry;
    const AttrSchema* attr = schema.FindAttr(name);
    if (attr == nullptr) Die(absl::StrCat(schema.type(), " has no attribute ", name));
    if (value.index() != attr->default_value.index()) {
      Die(absl::StrCat(schema.type(), " attribute ", name, " is ",
                       TypeName(AttrTypeOf(attr->default_value)), ", not ",
                       TypeName(AttrTypeOf(value))));
    }
    attrs.values_[attr - schema.attrs().data()] = std::move(entry.second);
  }
  return attrs;
}

bool OpAttrs::Does(absl::string_view behavior) const {
  for (const auto& [name, since] : schema_->behaviors()) {
    if (name == behavior) return !IsBefore(version_, since);
  }
  Die(absl::StrCat(schema_->type(), " has no behavior ", behavior));
}

bool OpAttrs::Has(absl::string_view name) const {
  return schema_ != nullptr && schema_->FindAttr(name) != nullptr;
}

absl::Status OpAttrs::CheckRanges(absl::FunctionRef<bool(absl::string_view)> is_overridden) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const AttrSchema& attr = schema_->attrs()[i];
    const absl::optional<std::string> outside = std::visit(RangeChecker(attr.range), values_[i]);
    if (!outside.has_value() || is_overridden(attr.name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("attribute ", attr.name, ": expected ",
                                                   ToString(attr.range), ", found ", *outside));
  }
  return absl::OkStatus();
}

OpAttrs OpAttrs::For(const OpSchema& schema) const {
  std::vector<std::pair<std::string, AttrValue>> values;
  for (const AttrSchema& attr : schema.attrs()) {
    if (Has(attr.name)) values.emplace_back(attr.name, Get(attr.name));
  }
  return Make(schema, std::move(values), version_);
}

void OpAttrs::Set(absl::string_view name, AttrValue value) {
  if (!Has(name)) Die(absl::StrCat("no attribute ", name));
  values_[schema_->FindAttr(name) - schema_->attrs().data()] = std::move(value);
}

const AttrValue& OpAttrs::Get(absl::string_view name) const {
  if (!Has(name)) Die(absl::StrCat("no attribute ", name));
  return values_[schema_->FindAttr(name) - schema_->attrs().data()];
}

int64_t OpAttrs::Int(absl::string_view name) const {
  const AttrValue& value = Get(name);
  if (const auto* i = std::get_if<int32_t>(&value)) return *i;
  if (const auto* l = std::get_if<int64_t>(&value)) return *l;
  Die(absl::StrCat(name, " is not an integer"));
}

double OpAttrs::Float(absl::string_view name) const {
  const AttrValue& value = Get(name);
  if (const auto* f = std::get_if<float>(&value)) return *f;
  if (const auto* d = std::get_if<double>(&value)) return *d;
  Die(absl::StrCat(name, " is not floating point"));
}

bool OpAttrs::Bool(absl::string_view name) const {
  const auto* b = std::get_if<bool>(&Get(name));
  if (b == nullptr) Die(absl::StrCat(name, " is not a boolean"));
  return *b;
}

const std::string& OpAttrs::String(absl::string_view name) const {
  const auto* s = std::get_if<std::string>(&Get(name));
  if (s == nullptr) Die(absl::StrCat(name, " is not a string"));
  return *s;
}

std::vector<int64_t> OpAttrs::Ints(absl::string_view name) const {
  const AttrValue& value = Get(name);
  if (const auto* ints = std::get_if<std::vector<int32_t>>(&value)) {
    return std::vector<int64_t>(ints->begin(), ints->end());
  }
  if (const auto* longs = std::get_if<std::vector<int64_t>>(&value)) return *longs;
  Die(absl::StrCat(name, " is not a list of integers"));
}

std::vector<double> OpAttrs::Floats(absl::string_view name) const {
  const AttrValue& value = Get(name);
  if (const auto* floats = std::get_if<std::vector<float>>(&value)) {
    return std::vector<double>(floats->begin(), floats->end());
  }
  if (const auto* doubles = std::get_if<std::vector<double>>(&value)) return *doubles;
  Die(absl::StrCat(name, " is not a list of floating-point numbers"));
}

const std::vector<std::string>& OpAttrs::Strings(absl::string_view name) const {
  const auto* strings = std::get_if<std::vector<std::string>>(&Get(name));
  if (strings == nullptr) Die(absl::StrCat(name, " is not a list of strings"));
  return *strings;
}

const std::vector<Scalar>& OpAttrs::Scalars(absl::string_view name) const {
  const auto* scalars = std::get_if<std::vector<Scalar>>(&Get(name));
  if (scalars == nullptr) Die(absl::StrCat(name, " is not a list of scalars"));
  return *scalars;
}

int OpAttrs::Block(absl::string_view name) const {
  const auto* block = std::get_if<BlockRef>(&Get(name));
  if (block == nullptr) Die(absl::StrCat(name, " is not a block"));
  return block->idx;
}

pb::OpDesc::Attr MakeAttr(absl::string_view name, const AttrValue& value) {
  pb::OpDesc::Attr attr;
  attr.set_name(std::string(name));
  attr.set_type(AttrTypeOf(value));
  std::visit(AttrWriter{&attr}, value);
  return attr;
}

}  // namespace weft
