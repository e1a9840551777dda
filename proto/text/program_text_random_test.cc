// Random messages of the whole format, field by field: what the text cannot say, it loses.
#include <random>
#include <string>

#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/testing/message_text.h"
#include "proto/text/program_text.h"

namespace weft::testing {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::UnknownFieldSet;

class MessageMaker {
 public:
  explicit MessageMaker(uint32_t seed) : random_(seed) {}

  pb::ProgramDesc Program() {
    pb::ProgramDesc program;
    Fill(&program);
    return program;
  }

 private:
  bool OneIn(int n) { return random_() % n == 0; }

  void Fill(Message* message) {
    if (auto* attr = dynamic_cast<pb::OpDesc::Attr*>(message)) {
      if (!OneIn(4)) return FillUsualAttr(attr);
    }
    const auto* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      // Required fields and parts are mostly there, others are not.
      const bool part = field->is_repeated() && field->message_type() != nullptr;
      if (field->is_required() || part ? OneIn(8) : !OneIn(3)) continue;
      FillField(message, field);
    }
    if (OneIn(8)) {
      FillUnknown(message->GetReflection()->MutableUnknownFields(message), type, 3);
    }
  }

  // Name, type and the value of that type: the fields of the types stand in this order.
  void FillUsualAttr(pb::OpDesc::Attr* attr) {
    static constexpr int kValueField[] = {3,  4,  5,  6,  7,  8,  10, 11, 12,
                                          13, 14, 15, 16, 17, 18, 19, 20, 21};
    attr->set_name(OneIn(3) ? "op_role" : OneIn(3) ? "op_role_var" : String());
    int type = random_() % 18;
    if (attr->name() == "op_role" && !OneIn(3)) type = pb::INT;
    if (attr->name() == "op_role_var" && !OneIn(3)) type = pb::STRINGS;
    attr->set_type(static_cast<pb::AttrType>(type));
    if (!OneIn(5)) FillField(attr, attr->GetDescriptor()->FindFieldByNumber(kValueField[type]));
  }

  void FillField(Message* message, const FieldDescriptor* field) {
    const int count = field->is_repeated() ? random_() % 4 : 1;
    for (int i = 0; i < count; ++i) AddValue(message, field);
  }

  void AddValue(Message* message, const FieldDescriptor* field) {
    const Reflection& r = *message->GetReflection();
    const bool many = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        many ? r.AddInt32(message, field, Int()) : r.SetInt32(message, field, Int());
        break;
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t value = OneIn(2) ? Int() : static_cast<int64_t>(Bits<uint64_t>());
        many ? r.AddInt64(message, field, value) : r.SetInt64(message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_FLOAT:
        many ? r.AddFloat(message, field, Floating<float, uint32_t>())
             : r.SetFloat(message, field, Floating<float, uint32_t>());
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        many ? r.AddDouble(message, field, Floating<double, uint64_t>())
             : r.SetDouble(message, field, Floating<double, uint64_t>());
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        many ? r.AddBool(message, field, OneIn(2)) : r.SetBool(message, field, OneIn(2));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        many ? r.AddString(message, field, String()) : r.SetString(message, field, String());
        break;
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* type = field->enum_type();
        const auto* value = type->value(random_() % type->value_count());
        many ? r.AddEnum(message, field, value) : r.SetEnum(message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(many ? r.AddMessage(message, field) : r.MutableMessage(message, field));
        break;
      default:
        FAIL() << field->full_name();
    }
  }

  // Numbers that the message does not use, and those of enums: where protobuf keeps the numbers
  // that an enum lacks.
  void FillUnknown(UnknownFieldSet* fields, const google::protobuf::Descriptor* type, int depth) {
    for (int i = random_() % 3; i >= 0; --i) {
      const int number = 50 + random_() % 1000;
      switch (random_() % (depth > 0 ? 6 : 4)) {
        case 0:
          fields->AddVarint(number, Bits<uint64_t>());
          break;
        case 1:
          fields->AddFixed32(number, random_());
          break;
        case 2:
          fields->AddFixed64(number, Bits<uint64_t>());
          break;
        case 3:
          fields->AddLengthDelimited(number, String());
          break;
        case 4:
          FillUnknown(fields->AddGroup(number), nullptr, depth - 1);
          break;
        default:
          for (int f = 0; type != nullptr && f < type->field_count(); ++f) {
            if (type->field(f)->enum_type() != nullptr) {
              fields->AddVarint(type->field(f)->number(), 1000 + random_() % 100);
            }
          }
      }
    }
  }

  template <typename T>
  T Bits() {
    return static_cast<T>((uint64_t{random_()} << 32) | random_());
  }
  int32_t Int() { return OneIn(2) ? static_cast<int32_t>(random_() % 5) - 2 : random_(); }

  template <typename F, typename B>
  F Floating() {
    if (OneIn(2)) return static_cast<F>(Int()) / 4;
    const B bits = Bits<B>();
    F value;
    static_assert(sizeof(bits) == sizeof(value));
    memcpy(&value, &bits, sizeof(value));
    return value;
  }

  std::string String() {
    static const char* const kStrings[] = {
        "",       "x",     "fc_0.w_0@GRAD", "@EMPTY@", "op_role", "a b",
        "\"",     "\\",    "var",           "block",   "role",    "}",
        "#",      "-1",    "1.5",           "true",    "?",       "\xe6\x97\xa5",
        "\xff\n", "extra", "a\rb\tc",       "ints["};
    if (!OneIn(5)) return kStrings[random_() % (sizeof(kStrings) / sizeof(kStrings[0]))];
    std::string bytes;
    for (int n = random_() % 20; n > 0; --n) bytes.push_back(static_cast<char>(random_()));
    return bytes;
  }

  std::mt19937 random_;
};

TEST(ProgramTextRandomTest, AnyMessageReadsBackEqual) {
  google::protobuf::LogSilencer quiet;  // it warns of names that are not UTF-8
  size_t bytes = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const pb::ProgramDesc program = MessageMaker(seed).Program();
    const std::string text = MessageText(program);
    const absl::StatusOr<pb::ProgramDesc> read = ParseProgramDescText(text);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << "\n" << text;
    ASSERT_EQ(read->SerializePartialAsString(), program.SerializePartialAsString())
        << "seed " << seed << "\n"
        << text;
    ASSERT_EQ(MessageText(*read), text) << "seed " << seed;
    bytes += text.size();
  }
  EXPECT_GT(bytes, 1000000u);  // the messages were not all nearly empty
}

TEST(ProgramTextRandomTest, ShortTextOfAnyMessageParses) {
  google::protobuf::LogSilencer quiet;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const std::string text = MessageText(MessageMaker(seed).Program(), PrintOptions::Short());
    const absl::StatusOr<pb::ProgramDesc> read = ParseProgramDescText(text);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << "\n" << text;
  }
}

}  // namespace
}  // namespace weft::testing
