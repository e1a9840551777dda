// What the files are made of: parts of a ProgramDesc in the wire format of protobuf, which point
// into the file. What is not accepted throws Failure.
#ifndef WEFT_CHECKER_FORMAT_H_
#define WEFT_CHECKER_FORMAT_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace checker {

struct Failure {
  std::string why;
  std::vector<std::string> own = {};   // states that may differ between ranks, if that is why
  std::vector<std::string> late = {};  // rings and states that travel over them, if that is why
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... why) {
  throw Failure{Text(why...)};
}

template <typename... Parts>
void Expect(bool is_true, const Parts&... why_not) {
  if (!is_true) Fail(why_not...);
}

std::string Sha256(std::string_view bytes);  // 64 hexadecimal digits

// The fields of a message, in order. Groups and field 0 are refused.
class Fields {
 public:
  uint64_t number = 0;
  std::string_view whole;  // with the tag

  explicit Fields(std::string_view message = {}) : rest_(message) {}
  bool Next(uint64_t wanted = 0) {  // of that number; 0: of any. False: there is no further one
    do {
      if (rest_.empty()) return false;
      whole = rest_;
      const uint64_t tag = ReadVarint();
      number = tag >> 3;
      wire_type_ = tag & 7;
      Expect(number != 0, "a message has a field 0");
      Expect(wire_type_ <= 2 || wire_type_ == 5, "a field has an unknown wire type");
      value_ = wire_type_ == 1 ? 8 : wire_type_ == 5 ? 4 : ReadVarint();
      if (wire_type_ != 0) {
        Expect(value_ <= rest_.size(), "a message is cut off");
        bytes_ = rest_.substr(0, value_);
        rest_.remove_prefix(value_);
      }
    } while (wanted != 0 && number != wanted);
    whole.remove_suffix(rest_.size());
    return true;
  }

  // The value, of a field that must have that wire type; empty or 0 before the first one.
  std::string_view Bytes() const { return Of(2).bytes_; }
  uint64_t Varint() const { return Of(0).value_; }
  float Float() const {
    float value = 0;
    std::memcpy(&value, Of(5).bytes_.data(), sizeof(value));
    return value;
  }
  bool IsZero() const {  // or empty
    const bool is_fixed = wire_type_ == 1 || wire_type_ == 5;
    return is_fixed ? bytes_.find_first_not_of('\0') == bytes_.npos : value_ == 0;
  }

 private:
  const Fields& Of(uint64_t wire_type) const {
    Expect(wire_type_ == wire_type || number == 0,
           "a field has another wire type than in the format");
    return *this;
  }
  uint64_t ReadVarint() {
    uint64_t value = 0;
    for (size_t i = 0; i < rest_.size(); ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      Expect(i < 9 || byte <= 1, "a number is longer than 64 bits");
      value |= uint64_t{byte & 127u} << (7 * i);
      if (byte >= 128) continue;
      rest_.remove_prefix(i + 1);
      return value;
    }
    Fail("a message is cut off");
  }

  std::string_view rest_, bytes_;
  uint64_t wire_type_ = 0, value_ = 0;  // of bytes: how many
};

// Fields that are there once at most, as readers differ in which one counts: 1 to n, and one.
template <size_t n>
std::array<Fields, n + 1> FirstFields(std::string_view message) {
  std::array<Fields, n + 1> found;
  for (Fields fields(message); fields.Next();) {
    if (fields.number > n) continue;
    Expect(found[fields.number].number == 0, "a field is there twice");
    found[fields.number] = fields;
  }
  return found;
}
inline Fields OnlyField(std::string_view message, uint64_t number) {
  Fields fields(message);
  if (!fields.Next(number)) return Fields();
  Fields further = fields;
  Expect(!further.Next(number), "a field is there twice");
  return fields;
}
inline std::string_view TextOf(std::string_view message, uint64_t number) {
  return OnlyField(message, number).Bytes();
}
inline uint64_t NumberOf(std::string_view message, uint64_t number) {
  return OnlyField(message, number).Varint();
}

// The fields of a message but those of two numbers, each of which `use` gets.
template <typename Use>
std::vector<std::string_view> OthersOf(std::string_view message, uint64_t a, uint64_t b, Use use) {
  std::vector<std::string_view> others;
  for (Fields fields(message); fields.Next();) {
    const bool is_other = fields.number != a && fields.number != b;
    is_other ? others.push_back(fields.whole) : use(fields);
    Expect(others.size() <= 512, "the file, or block 0, has too many fields");
  }
  return others;
}

// A declaration.
struct Decl {
  std::string_view bytes, name, tensor;
  bool persistable = false, is_data = false;
  int type = 0, dtype = 0;  // VarType.type: 7 a dense tensor; and of its elements
  int64_t elements = -1;    // -1: unknown

  explicit Decl(std::string_view decl) : bytes(decl) {
    const auto fields = FirstFields<4>(decl);
    name = fields[1].Bytes();
    const std::string_view described = fields[2].Bytes();
    persistable = fields[3].Varint() != 0;
    is_data = fields[4].Varint() != 0;
    type = static_cast<int>(NumberOf(described, 1));
    // The tensor of rows is there itself, others in a message of their own.
    tensor = type == 8 ? TextOf(described, 2) : TextOf(TextOf(described, type == 13 ? 4 : 3), 1);
    dtype = static_cast<int>(NumberOf(tensor, 1));
    if (tensor.data() != nullptr) elements = 1;
    for (const int64_t dim : Dims()) {
      const bool is_known =
          dim > 0 && elements > 0 && elements <= std::numeric_limits<int64_t>::max() / dim;
      elements = is_known ? elements * dim : -1;
    }
  }
  std::vector<int64_t> Dims() const {
    std::vector<int64_t> dims;
    for (Fields fields(tensor); fields.Next(2);) {
      dims.push_back(static_cast<int64_t>(fields.Varint()));  // no version of Paddle packs them
    }
    Expect(dims.size() <= 64, name, ": too many dimensions");
    return dims;
  }
  bool IsState() const { return persistable && (type == 7 || type == 8 || type == 13); }
  bool IsFloats() const {  // of a known size, in a step
    return type == 7 && !persistable && elements >= 0 && FloatSize() > 0;
  }
  int FloatSize() const {  // bytes of an element of floats; 0: another type
    return dtype == 4 || dtype == 22 ? 2 : dtype == 5 ? 4 : dtype == 6 ? 8 : 0;
  }
};

// The parts of block 0: its declarations, and its ops, perhaps with other fields between them.
struct Block {
  std::string_view decls, ops;
  uint64_t num_decls = 0;
  std::vector<std::string_view> others;

  explicit Block(std::string_view block = {}) {
    others = OthersOf(block, 3, 4, [&](const Fields& field) {
      std::string_view& parts = field.number == 3 ? decls : ops;
      const char* const begin = parts.empty() ? field.whole.data() : parts.data();
      const char* const end = field.whole.data() + field.whole.size();
      parts = {begin, static_cast<size_t>(end - begin)};
      num_decls += field.number == 3 ? 1 : 0;
    });
  }
};

struct Attr {
  enum { kInt, kFloat, kString, kInts, kStrings = 5, kBool, kBlock = 8, kLong, kBlocks, kLongs };
  std::string_view name, bytes;
  uint64_t type = 0;

  explicit Attr(std::string_view attr) : bytes(attr) {
    const auto fields = FirstFields<2>(attr);
    name = fields[1].Bytes();
    type = fields[2].Varint();
  }
  // Values count only in the field that belongs to the type. No rule reads lists of floats or
  // booleans.
  template <typename T>
  std::vector<T> Values(T (Fields::*get)() const) const {
    static constexpr uint64_t kFieldOf[] = {3, 4, 5, 6, 0, 8, 10, 0, 12, 13, 14, 15};
    const bool is_list = type == kInts || type == kStrings || type >= kBlocks;
    std::vector<T> values;
    for (Fields fields(bytes);
         type <= kLongs && kFieldOf[type] > 0 && fields.Next(kFieldOf[type]);) {
      values.push_back((fields.*get)());
      Expect(values.size() <= (is_list ? 1 << 20 : 1), "attribute ", name, " has more values");
    }
    return values;
  }
  std::vector<uint64_t> Numbers() const { return Values(&Fields::Varint); }
  std::vector<std::string_view> Texts() const { return Values(&Fields::Bytes); }
  bool IsZero() const {  // each value is 0, false, or empty
    const std::vector<bool> are = Values(&Fields::IsZero);
    return type <= kLongs && type != 4 && type != 7 &&
           std::find(are.begin(), are.end(), false) == are.end();
  }
};

struct Op {
  struct Slot {
    std::string_view name;
    bool is_output;
  };
  struct Arg : Slot {  // of that slot, the one at that place
    std::string_view var;
    size_t place;
  };
  static bool AreAtOnePlace(const Arg& a, const Arg& b) {
    return a.name == b.name && a.is_output == b.is_output && a.place == b.place;
  }
  std::string_view bytes, type;
  std::vector<Slot> slots;
  std::vector<Arg> args;  // without empty names and @EMPTY@
  std::vector<Attr> attrs;

  // Refuses slots and attributes that are there twice, but for equal attributes: which of them
  // counts depends on the order.
  explicit Op(std::string_view op) : bytes(op) {
    size_t num_types = 0;
    slots.reserve(16), args.reserve(16), attrs.reserve(32);
    for (Fields fields(op); fields.Next();) {
      if (fields.number == 4) {
        attrs.emplace_back(fields.Bytes());
        const Attr* const first = Find(attrs.back().name);
        Expect(first->bytes == attrs.back().bytes, "attribute ", first->name, " is there twice");
      } else if (fields.number == 3) {
        type = fields.Bytes();
        Expect(++num_types == 1, "its type is there twice");
      } else if (fields.number < 3) {
        const Slot added{TextOf(fields.Bytes(), 1), fields.number == 2};
        for (const Slot& slot : slots) {
          Expect(slot.is_output != added.is_output || slot.name != added.name,
                 added.is_output ? "output slot " : "input slot ", added.name, " is there twice");
        }
        slots.push_back(added);
        size_t place = 0;
        for (Fields vars(fields.Bytes()); vars.Next(2); ++place) {
          const std::string_view var = vars.Bytes();
          if (!var.empty() && var != "@EMPTY@") args.push_back({added, var, place});
        }
      }
      Expect(slots.size() + attrs.size() <= 256, "it has too many slots or attributes");
    }
  }
  const Attr* Find(std::string_view attr) const {  // null: there is none
    for (const Attr& found : attrs) {
      if (found.name == attr) return &found;
    }
    return nullptr;
  }
  std::vector<uint64_t> Numbers(std::string_view attr) const {
    const Attr* const found = Find(attr);
    return found == nullptr ? std::vector<uint64_t>() : found->Numbers();
  }
  int64_t Number(std::string_view attr, int64_t absent) const {
    if (Find(attr) == nullptr) return absent;
    const std::vector<uint64_t> numbers = Numbers(attr);
    return numbers.empty() ? 0 : static_cast<int64_t>(numbers[0]);
  }
};

// The fields of an op in an order of their own, but for what says where in a script it was made.
// Without fields of lower numbers than `first`: 2 leaves out inputs, 3 outputs, too.
inline std::vector<std::string_view> SortedFields(std::string_view op, uint64_t first = 1) {
  std::vector<std::string_view> kept;
  for (Fields fields(op); fields.Next();) {
    const std::string_view name = fields.number == 4 ? TextOf(fields.Bytes(), 1) : "";
    const bool is_of_script = name == "op_callstack" || name == "op_namescope";
    if (!is_of_script && fields.number >= first) kept.push_back(fields.whole);
    Expect(kept.size() <= 512, "it has too many fields");
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// The attributes, and what is neither an argument nor the type, but for names.
inline std::vector<std::string_view> AttrsOf(std::string_view op) {
  std::vector<std::string_view> attrs;
  for (const std::string_view field : SortedFields(op, 4)) {
    Fields attr(field);
    attr.Next();
    const bool names = attr.number == 4 && TextOf(attr.Bytes(), 1) == "op_role_var";
    if (!names) attrs.push_back(field);
  }
  return attrs;
}

inline bool AreSameOps(std::string_view op, std::string_view other) {
  return op == other || SortedFields(op) == SortedFields(other);
}

}  // namespace checker

#endif  // WEFT_CHECKER_FORMAT_H_
