#include "executor/files/pickle_machine.h"

#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "executor/files/npy.h"

namespace weft {
namespace {

enum Global : int64_t {
  kReconstruct,
  kNdArray,
  kDTypeClass,
  kScalar,
  kEncode,
  kOrderedDict,
  kTuple
};

struct GlobalName {
  absl::string_view module, name;
  Global global;
};
// NumPy 2 has moved its core.
constexpr GlobalName kGlobals[] = {
    {"numpy.core.multiarray", "_reconstruct", kReconstruct},
    {"numpy._core.multiarray", "_reconstruct", kReconstruct},
    {"numpy", "ndarray", kNdArray},
    {"numpy", "dtype", kDTypeClass},
    {"numpy.core.multiarray", "scalar", kScalar},
    {"numpy._core.multiarray", "scalar", kScalar},
    {"_codecs", "encode", kEncode},
    {"collections", "OrderedDict", kOrderedDict},
    {"builtins", "tuple", kTuple},
    {"__builtin__", "tuple", kTuple},
};

struct DTypeNameOf {
  absl::string_view name;
  DType dtype;
};
// Paddle writes bf16 as the integers of the same bits.
constexpr DTypeNameOf kDTypes[] = {
    {"b1", DType::kBool},     {"i1", DType::kInt8},    {"u1", DType::kUint8},
    {"i2", DType::kInt16},    {"i4", DType::kInt32},   {"i8", DType::kInt64},
    {"f2", DType::kFloat16},  {"f4", DType::kFloat32}, {"f8", DType::kFloat64},
    {"u2", DType::kBFloat16},
};

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::StatusOr<uint32_t> PickleMachine::Run() {
  while (!rest_.empty()) {
    const size_t at = size_ - rest_.size();
    const char instruction = rest_[0];
    rest_.remove_prefix(1);
    bool stops = false;
    absl::Status status = Step(instruction, &stops);
    status.Update(CheckSize());
    if (!status.ok()) {
      return Annotate(absl::StrCat("instruction at byte ", at, " ('",
                                   absl::CHexEscape(absl::string_view(&instruction, 1)), "')"),
                      status);
    }
    if (!stops) continue;
    if (stack_.size() != 1 || !marks_.empty())
      return Bad("the pickle does not end with one object");
    return stack_[0];
  }
  return Bad("truncated: the pickle has no end");
}

absl::StatusOr<absl::string_view> PickleMachine::Take(uint64_t size) {
  if (size > rest_.size()) {
    return Bad(absl::StrCat("truncated: takes ", size, " bytes, but ", rest_.size(), " are left"));
  }
  const absl::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

absl::StatusOr<uint64_t> PickleMachine::TakeNumber(int bytes) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view digits, Take(bytes));
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
  return value;
}

absl::StatusOr<absl::string_view> PickleMachine::TakeSized(int length_bytes) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t size, TakeNumber(length_bytes));
  return Take(size);
}

absl::StatusOr<absl::string_view> PickleMachine::TakeLine() {
  const size_t end = rest_.find('\n');
  if (end == absl::string_view::npos) return Bad("truncated: a line without an end");
  const absl::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return line;
}

absl::Status PickleMachine::CheckSize() const {
  // The memory of an object that has no items, and of items and references in vectors that grow by
  // doubling.
  constexpr size_t kObjectBytes = sizeof(PickleObject), kItemBytes = 2 * sizeof(uint32_t);
  const size_t free_bytes = kFreeObjects * kObjectBytes;
  const size_t bytes =
      objects_.size() * kObjectBytes + (items_ + stack_.size() + memo_.size()) * kItemBytes;
  if (bytes <= free_bytes + size_ && objects_.size() < std::numeric_limits<uint32_t>::max()) {
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("the objects take ", bytes, " bytes, more than ", free_bytes,
                          " and the size of the pickle"));
}

void PickleMachine::Push(PickleObject object) {
  stack_.push_back(static_cast<uint32_t>(objects_.size()));
  items_ += object.items.size();
  objects_.push_back(std::move(object));
}

absl::StatusOr<uint32_t> PickleMachine::Pop() {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
    return Bad("takes an object, but there is none");
  }
  const uint32_t top = stack_.back();
  stack_.pop_back();
  return top;
}

absl::StatusOr<std::vector<uint32_t>> PickleMachine::PopToMark() {
  if (marks_.empty()) return Bad("takes a mark, but there is none");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<uint32_t> objects(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return objects;
}

absl::StatusOr<PickleObject*> PickleMachine::Top(Kind kind, const char* expected) {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size()) ||
      !Is(stack_.back(), kind)) {
    return Bad(absl::StrCat("expected ", expected));
  }
  return &objects_[stack_.back()];
}

absl::Status PickleMachine::PushTuple(size_t size) {
  PickleObject tuple;
  tuple.kind = Kind::kTuple;
  tuple.items.resize(size);
  for (size_t i = size; i-- > 0;) {
    WEFT_ASSIGN_OR_RETURN(tuple.items[i], Pop());
  }
  Push(std::move(tuple));
  return absl::OkStatus();
}

absl::Status PickleMachine::PushGlobal(absl::string_view module, absl::string_view name) {
  for (const GlobalName& known : kGlobals) {
    if (known.module != module || known.name != name) continue;
    PickleObject object;
    object.kind = Kind::kGlobal;
    object.number = known.global;
    Push(std::move(object));
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("names ", absl::CHexEscape(module), ".", absl::CHexEscape(name),
                          ", which arrays do not need"));
}

absl::Status PickleMachine::PushLiteral(char instruction, bool* known) {
  PickleObject object;
  switch (instruction) {
    case 'N':
      break;
    case '\x88':
    case '\x89':
      object.kind = Kind::kBool;
      object.number = instruction == '\x88' ? 1 : 0;
      break;
    case 'K':
    case 'M':
    case 'J': {
      object.kind = Kind::kInt;
      WEFT_ASSIGN_OR_RETURN(const uint64_t value, TakeNumber(instruction == 'K'   ? 1
                                                             : instruction == 'M' ? 2
                                                                                  : 4));
      object.number =
          instruction == 'J' ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
      break;
    }
    case '\x8a': {
      object.kind = Kind::kInt;
      WEFT_ASSIGN_OR_RETURN(const absl::string_view digits, TakeSized(1));
      if (digits.size() > sizeof(int64_t)) return Bad("a number of more than 64 bits");
      const bool is_negative = !digits.empty() && (digits.back() & 0x80) != 0;
      uint64_t value = is_negative ? ~uint64_t{0} : 0;
      for (size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(digits[i]);
      object.number = static_cast<int64_t>(value);
      break;
    }
    case 'G': {
      object.kind = Kind::kFloat;
      WEFT_RETURN_IF_ERROR(Take(sizeof(double)).status());
      break;
    }
    case '\x8c':
    case 'X':
    case '\x8d': {
      object.kind = Kind::kText;
      WEFT_ASSIGN_OR_RETURN(object.text, TakeSized(instruction == '\x8c' ? 1
                                                   : instruction == 'X'  ? 4
                                                                         : 8));
      break;
    }
    case 'C':
    case 'B':
    case '\x8e': {
      object.kind = Kind::kBytes;
      WEFT_ASSIGN_OR_RETURN(object.text, TakeSized(instruction == 'C'   ? 1
                                                   : instruction == 'B' ? 4
                                                                        : 8));
      break;
    }
    case '}':
      object.kind = Kind::kDict;
      break;
    case ']':
      object.kind = Kind::kList;
      break;
    case ')':
      object.kind = Kind::kTuple;
      break;
    default:
      *known = false;
      return absl::OkStatus();
  }
  *known = true;
  Push(std::move(object));
  return absl::OkStatus();
}

absl::Status PickleMachine::Collect(char instruction, bool* known) {
  *known = true;
  switch (instruction) {
    case '(':
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case 't': {
      PickleObject tuple;
      tuple.kind = Kind::kTuple;
      WEFT_ASSIGN_OR_RETURN(tuple.items, PopToMark());
      Push(std::move(tuple));
      return absl::OkStatus();
    }
    case '\x85':
    case '\x86':
    case '\x87':
      return PushTuple(static_cast<uint8_t>(instruction) - 0x84);
    case 'a':
    case 's': {
      std::vector<uint32_t> items(instruction == 'a' ? 1 : 2);
      for (size_t i = items.size(); i-- > 0;) {
        WEFT_ASSIGN_OR_RETURN(items[i], Pop());
      }
      WEFT_ASSIGN_OR_RETURN(PickleObject* const into,
                            Top(instruction == 'a' ? Kind::kList : Kind::kDict,
                                instruction == 'a' ? "a list" : "a dictionary"));
      into->items.insert(into->items.end(), items.begin(), items.end());
      items_ += items.size();
      return absl::OkStatus();
    }
    case 'e':
    case 'u': {
      WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> items, PopToMark());
      if (instruction == 'u' && items.size() % 2 != 0) return Bad("a key without a value");
      WEFT_ASSIGN_OR_RETURN(PickleObject* const into,
                            Top(instruction == 'e' ? Kind::kList : Kind::kDict,
                                instruction == 'e' ? "a list" : "a dictionary"));
      into->items.insert(into->items.end(), items.begin(), items.end());
      items_ += items.size();
      return absl::OkStatus();
    }
    default:
      *known = false;
      return absl::OkStatus();
  }
}

absl::Status PickleMachine::Memorize(char instruction, bool* known) {
  *known = true;
  switch (instruction) {
    case '\x94':
    case 'q':
    case 'r': {
      uint64_t number = memo_.size();
      if (instruction != '\x94') {
        WEFT_ASSIGN_OR_RETURN(number, TakeNumber(instruction == 'q' ? 1 : 4));
      }
      // Python numbers them in order.
      if (number > memo_.size()) return Bad("remembers an object out of order");
      if (stack_.empty()) return Bad("takes an object, but there is none");
      if (number == memo_.size()) memo_.push_back(0);
      memo_[number] = stack_.back();
      return absl::OkStatus();
    }
    case 'h':
    case 'j': {
      WEFT_ASSIGN_OR_RETURN(const uint64_t number, TakeNumber(instruction == 'h' ? 1 : 4));
      if (number >= memo_.size()) return Bad("takes an object that was not remembered");
      stack_.push_back(memo_[number]);
      return absl::OkStatus();
    }
    default:
      *known = false;
      return absl::OkStatus();
  }
}

absl::Status PickleMachine::Step(char instruction, bool* stops) {
  bool known = false;
  WEFT_RETURN_IF_ERROR(PushLiteral(instruction, &known));
  if (!known) WEFT_RETURN_IF_ERROR(Collect(instruction, &known));
  if (!known) WEFT_RETURN_IF_ERROR(Memorize(instruction, &known));
  if (known) return absl::OkStatus();
  switch (instruction) {
    case '\x80': {
      WEFT_ASSIGN_OR_RETURN(const uint64_t protocol, TakeNumber(1));
      if (protocol >= 2 && protocol <= 4) return absl::OkStatus();
      return Bad(absl::StrCat("protocol ", protocol, "; expected 2 to 4, as Paddle has them"));
    }
    case '\x95':  // the size of what follows, for readers of streams
      return TakeNumber(8).status();
    case 'c': {
      WEFT_ASSIGN_OR_RETURN(const absl::string_view module, TakeLine());
      WEFT_ASSIGN_OR_RETURN(const absl::string_view name, TakeLine());
      return PushGlobal(module, name);
    }
    case '\x93': {
      WEFT_ASSIGN_OR_RETURN(const uint32_t name, Pop());
      WEFT_ASSIGN_OR_RETURN(const uint32_t module, Pop());
      if (!Is(name, Kind::kText) || !Is(module, Kind::kText)) return Bad("expected two texts");
      return PushGlobal(object(module).text, object(name).text);
    }
    case 'R':
      return Reduce();
    case 'b':
      return Build();
    case '.':
      *stops = true;
      return absl::OkStatus();
    default:
      return Bad("an instruction that arrays do not need");
  }
}

absl::Status PickleMachine::MakeDType(const PickleObject& arguments) {
  if (arguments.items.empty() || !Is(arguments.items[0], Kind::kText)) {
    return Bad("expected the name of an element type");
  }
  const absl::string_view name = object(arguments.items[0]).text;
  for (const DTypeNameOf& known : kDTypes) {
    if (known.name != name) continue;
    PickleObject dtype;
    dtype.kind = Kind::kDType;
    dtype.dtype = known.dtype;
    Push(std::move(dtype));
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("element type ", absl::CHexEscape(name), " is not supported"));
}

// Protocol 2 has no bytes: it writes them as a text of characters below 256.
absl::Status PickleMachine::DecodeLatin1(const PickleObject& arguments) {
  if (arguments.items.size() != 2 || !Is(arguments.items[0], Kind::kText) ||
      !Is(arguments.items[1], Kind::kText) || object(arguments.items[1]).text != "latin1") {
    return Bad("expected a text and latin1");
  }
  const absl::string_view text = object(arguments.items[0]).text;
  // A text that is remembered can be decoded any number of times.
  decoded_bytes_ += text.size();
  if (decoded_bytes_ > size_) return Bad("decodes more text than the pickle has");
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<uint8_t>(text[i]);
    if (first < 0x80) {
      bytes += text[i];
    } else if ((first & 0xfe) == 0xc2 && i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80) {
      bytes += static_cast<char>((first & 3) << 6 | (text[++i] & 0x3f));
    } else {
      return Bad("a text that is no latin1");
    }
  }
  decoded_.push_back(std::move(bytes));
  PickleObject made;
  made.kind = Kind::kBytes;
  made.text = decoded_.back();
  Push(std::move(made));
  return absl::OkStatus();
}

absl::Status PickleMachine::Reduce() {
  WEFT_ASSIGN_OR_RETURN(const uint32_t arguments_number, Pop());
  WEFT_ASSIGN_OR_RETURN(const uint32_t function, Pop());
  if (!Is(arguments_number, Kind::kTuple) || !Is(function, Kind::kGlobal)) {
    return Bad("expected a function and a tuple");
  }
  const PickleObject& arguments = object(arguments_number);
  PickleObject made;
  switch (object(function).number) {
    case kReconstruct:
      made.kind = Kind::kArray;
      break;
    case kDTypeClass:
      return MakeDType(arguments);
    case kEncode:
      return DecodeLatin1(arguments);
    case kScalar:
      made.kind = Kind::kOther;
      break;
    case kOrderedDict:
      if (!arguments.items.empty()) return Bad("expected an empty dictionary");
      made.kind = Kind::kDict;
      break;
    case kTuple:
      if (arguments.items.size() != 1 || !Is(arguments.items[0], Kind::kTuple)) {
        return Bad("expected a tuple");
      }
      stack_.push_back(arguments.items[0]);
      return absl::OkStatus();
    default:
      return Bad("calls what is no function of arrays");
  }
  Push(std::move(made));
  return absl::OkStatus();
}

absl::Status PickleMachine::Build() {
  WEFT_ASSIGN_OR_RETURN(const uint32_t state_number, Pop());
  if (!Is(state_number, Kind::kTuple)) return Bad("expected a tuple");
  if (stack_.empty()) return Bad("takes an object, but there is none");
  const PickleObject& state = object(state_number);
  PickleObject* const built = &objects_[stack_.back()];
  if (built->kind == Kind::kArray) return BuildArray(built, state);
  if (built->kind != Kind::kDType) return Bad("expected an array or an element type");
  // (3, '<', ...): the order of the bytes is the second.
  if (state.items.size() < 2 || !Is(state.items[1], Kind::kText))
    return Bad("expected a byte order");
  const absl::string_view order = object(state.items[1]).text;
  if (order == "<" || order == "|" || order == "=") return absl::OkStatus();
  return Bad(absl::StrCat("byte order ", absl::CHexEscape(order), "; expected <"));
}

// The state is (1, shape, element type, Fortran order, elements).
absl::Status PickleMachine::BuildArray(PickleObject* array, const PickleObject& state) {
  const std::vector<uint32_t>& items = state.items;
  if (items.size() != 5 || !Is(items[1], Kind::kTuple) || !Is(items[2], Kind::kDType) ||
      !Is(items[3], Kind::kBool) || !Is(items[4], Kind::kBytes)) {
    return Bad("expected shape, element type, order and elements of an array");
  }
  if (array->is_complete) return Bad("an array that is complete already");
  array->dtype = object(items[2]).dtype;
  for (uint32_t dim : object(items[1]).items) {
    if (!Is(dim, Kind::kInt) || object(dim).number < 0) return Bad("a dimension that is no size");
    array->dims.push_back(object(dim).number);
  }
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, ArrayBytes(array->dtype, array->dims));
  array->text = object(items[4]).text;
  if (array->text.size() != bytes) {
    return Bad(absl::StrCat("an array of ", DTypeName(array->dtype), DimsToString(array->dims),
                            " takes ", bytes, " bytes, found ", array->text.size()));
  }
  array->is_fortran_order = object(items[3]).number != 0;
  array->is_complete = true;
  return absl::OkStatus();
}

}  // namespace weft
