#include "proto/text/text_type.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/text/text_literal.h"
#include "proto/text/text_words.h"

namespace weft {
namespace {

namespace pb = ::paddle::framework::proto;
using Type = pb::VarType;

using ::google::protobuf::FieldDescriptor;

// A type of variables that has a description, and the field of VarType that holds it: a TensorDesc,
// except for types with a separate case below.
struct Form {
  Type::Type type;
  int field;
};
constexpr Form kForms[] = {
    {Type::LOD_TENSOR, Type::kLodTensorFieldNumber},
    {Type::SELECTED_ROWS, Type::kSelectedRowsFieldNumber},
    {Type::LOD_TENSOR_ARRAY, Type::kTensorArrayFieldNumber},
    {Type::READER, Type::kReaderFieldNumber},
    {Type::TUPLE, Type::kTupleFieldNumber},
    {Type::STRING, Type::kStringFieldNumber},
    {Type::STRINGS, Type::kStringsFieldNumber},
    {Type::VOCAB, Type::kVocabFieldNumber},
    {Type::SPARSE_COO, Type::kSparseCooFieldNumber},
    {Type::SPARSE_CSR, Type::kSparseCsrFieldNumber},
};

// Null for a type without a description.
const Form* FormOf(Type::Type type) {
  const Form* form = std::find_if(std::begin(kForms), std::end(kForms),
                                  [&](const Form& f) { return f.type == type; });
  return form == std::end(kForms) ? nullptr : form;
}

const FieldDescriptor* FieldOf(const Form& form) {
  return Type::descriptor()->FindFieldByNumber(form.field);
}

// The description of a type for which it is a TensorDesc.
const Type::TensorDesc& BareTensor(const Type& type) {
  const auto& message = type.GetReflection()->GetMessage(type, FieldOf(*FormOf(type.type())));
  return static_cast<const Type::TensorDesc&>(message);
}

Type::TensorDesc* MutableBareTensor(Type* type) {
  auto* message = type->GetReflection()->MutableMessage(type, FieldOf(*FormOf(type->type())));
  return static_cast<Type::TensorDesc*>(message);
}

// --- What has a short form ----------------------------------------------------------------------

bool IsUsual(const Type::TensorDesc& tensor) {
  return tensor.has_data_type() && HasOnly(tensor, {Type::TensorDesc::kDataTypeFieldNumber,
                                                    Type::TensorDesc::kDimsFieldNumber});
}

// LoD is LoDTensorDesc or LoDTensorArrayDesc.
template <typename LoD>
bool IsUsualLoD(const LoD& lod) {
  return lod.has_tensor() && HasOnly(lod, {LoD::kTensorFieldNumber, LoD::kLodLevelFieldNumber}) &&
         IsUsual(lod.tensor());
}

bool IsUsualDescription(const Type& type) {
  switch (type.type()) {
    case Type::LOD_TENSOR:
      return IsUsualLoD(type.lod_tensor());
    case Type::LOD_TENSOR_ARRAY:
      return IsUsualLoD(type.tensor_array());
    case Type::READER:
      return HasOnly(type.reader(), {Type::ReaderDesc::kLodTensorFieldNumber}) &&
             std::all_of(type.reader().lod_tensor().begin(), type.reader().lod_tensor().end(),
                         [](const Type::LoDTensorDesc& lod) { return IsUsualLoD(lod); });
    case Type::TUPLE:
      return HasOnly(type.tuple(), {Type::Tuple::kElementTypeFieldNumber});
    default:
      return IsUsual(BareTensor(type));
  }
}

bool HasDescription(const Type& type) {
  const Form* form = FormOf(type.type());
  return form != nullptr && type.GetReflection()->HasField(type, FieldOf(*form));
}

// --- Writing ------------------------------------------------------------------------------------

void AppendTypeName(Type::Type type, std::string* out) {
  out->append(absl::AsciiStrToLower(Type::Type_Name(type)));
}

void AppendTensor(const Type::TensorDesc& tensor, std::string* out) {
  AppendTypeName(tensor.data_type(), out);
  out->push_back('[');
  AppendList(tensor.dims(), out, [&](int64_t dim) { AppendInt(dim, out); });
  out->push_back(']');
}

template <typename LoD>
void AppendLoDTensor(const LoD& lod, TextDetail detail, std::string* out) {
  AppendTensor(lod.tensor(), out);
  if (detail == TextDetail::kExact ? lod.has_lod_level() : lod.lod_level() != 0) {
    absl::StrAppend(out, " lod=", lod.lod_level());
  }
}

void AppendDescription(const Type& type, TextDetail detail, std::string* out) {
  switch (type.type()) {
    case Type::LOD_TENSOR_ARRAY:
      AppendLoDTensor(type.tensor_array(), detail, out);
      break;
    case Type::READER:
      AppendList(type.reader().lod_tensor(), out,
                 [&](const Type::LoDTensorDesc& lod) { AppendLoDTensor(lod, detail, out); });
      break;
    case Type::TUPLE:
      AppendList(type.tuple().element_type(), out,
                 [&](int element) { AppendTypeName(static_cast<Type::Type>(element), out); });
      break;
    default:
      AppendTensor(BareTensor(type), out);
  }
}

// --- Reading ------------------------------------------------------------------------------------

bool ReadTypeName(TextLexer* lexer, Type::Type* type) {
  const std::string word(lexer->peek().text);
  // Type_Parse is called with upper case, so it would accept any case.
  const bool lower = std::none_of(word.begin(), word.end(), absl::ascii_isupper);
  if (!lower || !Type::Type_Parse(absl::AsciiStrToUpper(word), type)) return lexer->Fail("a type");
  lexer->Next();
  return true;
}

bool ReadDims(TextLexer* lexer, Type::Type data_type, Type::TensorDesc* tensor) {
  tensor->set_data_type(data_type);
  return lexer->Expect('[') && ReadList(lexer, ']', [&] {
           int64_t dim;
           if (!lexer->ExpectNumber(&dim)) return false;
           tensor->add_dims(dim);
           return true;
         });
}

bool ReadTensor(TextLexer* lexer, Type::TensorDesc* tensor) {
  Type::Type data_type;
  return ReadTypeName(lexer, &data_type) && ReadDims(lexer, data_type, tensor);
}

template <typename LoD>
bool ReadLoDLevel(TextLexer* lexer, LoD* lod) {
  if (!lexer->TryKey("lod")) return true;
  int32_t level;
  if (!lexer->ExpectNumber(&level)) return false;
  lod->set_lod_level(level);
  return true;
}

// From after the `<` to the `>`, inclusive.
bool ReadDescription(TextLexer* lexer, Type* type) {
  switch (type->type()) {
    case Type::LOD_TENSOR_ARRAY: {
      Type::LoDTensorArrayDesc* array = type->mutable_tensor_array();
      return ReadTensor(lexer, array->mutable_tensor()) && ReadLoDLevel(lexer, array) &&
             lexer->Expect('>');
    }
    case Type::READER: {
      Type::ReaderDesc* reader = type->mutable_reader();
      return ReadList(lexer, '>', [&] {
        Type::LoDTensorDesc* lod = reader->add_lod_tensor();
        return ReadTensor(lexer, lod->mutable_tensor()) && ReadLoDLevel(lexer, lod);
      });
    }
    case Type::TUPLE: {
      Type::Tuple* tuple = type->mutable_tuple();
      return ReadList(lexer, '>', [&] {
        Type::Type element;
        if (!ReadTypeName(lexer, &element)) return false;
        tuple->add_element_type(element);
        return true;
      });
    }
    default:
      return ReadTensor(lexer, MutableBareTensor(type)) && lexer->Expect('>');
  }
}

// True for types with a description in angle brackets.
bool TakesDescription(Type::Type type) {
  return type != Type::LOD_TENSOR && FormOf(type) != nullptr;
}

}  // namespace

bool HasShortForm(const Type& type) {
  if (!type.has_type()) return false;
  if (!HasDescription(type)) return HasOnly(type, {Type::kTypeFieldNumber});
  return HasOnly(type, {Type::kTypeFieldNumber, FormOf(type.type())->field}) &&
         IsUsualDescription(type);
}

void AppendVarType(const Type& type, TextDetail detail, std::string* out) {
  if (!HasShortForm(type)) {
    AppendLiteral(type, {}, out);
  } else if (!HasDescription(type)) {
    AppendTypeName(type.type(), out);
  } else if (type.type() == Type::LOD_TENSOR) {
    AppendLoDTensor(type.lod_tensor(), detail, out);
  } else {
    AppendTypeName(type.type(), out);
    out->push_back('<');
    AppendDescription(type, detail, out);
    out->push_back('>');
  }
}

bool ReadVarType(TextLexer* lexer, Type* type) {
  if (lexer->peek().Is('{')) return ReadLiteral(lexer, type);
  Type::Type name;
  if (!ReadTypeName(lexer, &name)) return false;
  if (lexer->peek().Is('[')) {
    type->set_type(Type::LOD_TENSOR);
    return ReadDims(lexer, name, type->mutable_lod_tensor()->mutable_tensor()) &&
           ReadLoDLevel(lexer, type->mutable_lod_tensor());
  }
  type->set_type(name);
  if (!lexer->peek().Is('<')) return true;
  if (!TakesDescription(name)) return lexer->Fail("a type that takes '<'");
  lexer->Next();
  return ReadDescription(lexer, type);
}

}  // namespace weft
