// What the files are made of: parts of a ProgramDesc in the wire format of protobuf, which point
// into the file. And SHA-256. What is not accepted throws Failure.
#ifndef WEFT_CHECKER_FORMAT_H_
#define WEFT_CHECKER_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace checker {

struct Failure {
  std::string why;
  std::vector<std::string> own = {};  // states that may differ between ranks, if that is why
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

template <typename... Parts>
void Expect(bool is_true, const Parts&... why_not) {
  if (!is_true) throw Failure{Text(why_not...)};
}

// The fields of a message, in order. Groups and field 0 are refused.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}
  bool Next(uint64_t wanted = 0);  // of that number; 0: of any. False: there is no further one
  uint64_t number = 0;
  std::string_view whole;  // with the tag

  // Of a field that must have that wire type.
  std::string_view Bytes() const { return Of(2).bytes_; }
  uint64_t Varint() const { return Of(0).value_; }
  float Float() const;
  bool IsZero() const { return value_ == 0; }  // or empty

 private:
  const Fields& Of(uint64_t wire_type) const;
  uint64_t ReadVarint();
  std::string_view rest_, bytes_;
  uint64_t wire_type_ = 0, value_ = 0;  // of bytes: how many
};

// The value of a field that is there once at most, as readers differ in which one counts.
std::string_view TextOf(std::string_view message, uint64_t number);
uint64_t NumberOf(std::string_view message, uint64_t number);

// A declaration.
struct Decl {
  std::string_view bytes, name, tensor;
  bool persistable = false, is_data = false;
  int type = 0, dtype = 0;  // VarType.type: 7 a dense tensor; and of its elements
  int64_t elements = -1;    // -1: unknown

  Decl() = default;
  explicit Decl(std::string_view decl);
  std::vector<int64_t> Dims() const;
  bool IsState() const { return persistable && (type == 7 || type == 8 || type == 13); }
  bool IsFloats() const {  // of a known size, in a step
    return type == 7 && !persistable && elements >= 0 && FloatSize() > 0;
  }
  int FloatSize() const {  // bytes of an element of floats; 0: another type
    return dtype == 4 || dtype == 22 ? 2 : dtype == 5 ? 4 : dtype == 6 ? 8 : 0;
  }
};

struct Attr {
  enum { kInt, kFloat, kString, kInts, kStrings = 5, kBool, kBlock = 8, kLong, kBlocks, kLongs };
  std::string_view name, bytes;
  uint64_t type = 0;

  explicit Attr(std::string_view attr);
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
  bool IsZero() const;  // each value is 0, false, or empty
};

struct Op {
  struct Slot {
    std::string_view name;
    bool is_output;
  };
  struct Arg : Slot {  // of that slot
    std::string_view var;
  };
  std::string_view bytes, type;
  std::vector<Slot> slots;
  std::vector<Arg> args;  // without empty names and @EMPTY@
  std::vector<Attr> attrs;

  // Refuses slots and attributes that are there twice, but for equal attributes: which of them
  // counts depends on the order. And arguments that take more memory than that.
  Op(std::string_view op, uint64_t memory_left);
  // Of the arguments, and of pointers to their variables, in vectors that grow.
  uint64_t Memory() const { return args.size() * 128; }
  const Attr* Find(std::string_view attr) const;  // null: there is none
  std::vector<uint64_t> Numbers(std::string_view attr) const;
  int64_t Number(std::string_view attr, int64_t absent) const;
};

// But for the order of fields, and for where in a script they were made.
bool AreSameOps(std::string_view op, std::string_view other);

std::string Sha256(std::string_view bytes);  // 64 hexadecimal digits

}  // namespace checker

#endif  // WEFT_CHECKER_FORMAT_H_
