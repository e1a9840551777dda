#include "proto/formats/pt2/importer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "ops/schema/op_schema.h"
#include "proto/formats/pt2/translator.h"
#include "proto/formats/pt2/updates.h"

namespace weft::pt2 {
namespace {

struct Translation {
  pb::ProgramDesc desc;
  std::map<std::string, double> rates;
};

absl::StatusOr<Translation> Translate(const Graph& graph) {
  const Makers makers(graph);
  WEFT_ASSIGN_OR_RETURN(const Updates updates, FindUpdates(graph, makers));
  Translator translator(graph, makers, updates);
  Translation translation;
  WEFT_ASSIGN_OR_RETURN(translation.desc, translator.Run());
  translation.rates = translator.rates();
  return translation;
}

template <typename T>
std::vector<T> Numbers(const std::string& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(numbers.data()));
  return numbers;
}

absl::Status SetNumbers(const std::string& bytes, pb::VarType::Type dtype, pb::OpDesc::Attr* attr) {
  switch (dtype) {
    case pb::VarType::FP32:
      attr->set_name("fp32_values");
      attr->set_type(pb::FLOATS);
      for (const float number : Numbers<float>(bytes)) attr->add_floats(number);
      return absl::OkStatus();
    case pb::VarType::FP64:
      attr->set_name("fp64_values");
      attr->set_type(pb::FLOAT64S);
      for (const double number : Numbers<double>(bytes)) attr->add_float64s(number);
      return absl::OkStatus();
    case pb::VarType::INT64:
      attr->set_name("int64_values");
      attr->set_type(pb::LONGS);
      for (const int64_t number : Numbers<int64_t>(bytes)) attr->add_longs(number);
      return absl::OkStatus();
    case pb::VarType::INT32:
      attr->set_name("int32_values");
      attr->set_type(pb::INTS);
      for (const int32_t number : Numbers<int32_t>(bytes)) attr->add_ints(number);
      return absl::OkStatus();
    default:
      return absl::UnimplementedError(absl::StrCat("expected fp32, fp64, int32 or int64, found ",
                                                   pb::VarType::Type_Name(dtype),
                                                   ": no startup program has such numbers"));
  }
}

// Zeros, or the numbers themselves.
absl::Status AddInitializer(const std::string& name, const Weight& value, pb::BlockDesc* block) {
  pb::VarDesc* const var = block->add_vars();
  var->set_name(name);
  var->set_persistable(true);
  var->mutable_type()->set_type(pb::VarType::LOD_TENSOR);
  pb::VarType::TensorDesc* const tensor =
      var->mutable_type()->mutable_lod_tensor()->mutable_tensor();
  tensor->set_data_type(value.meta.dtype);
  for (const int64_t dim : value.meta.dims) tensor->add_dims(dim);
  pb::OpDesc* const op = block->add_ops();
  auto* const out = op->add_outputs();
  out->set_parameter("Out");
  out->add_arguments(name);
  const bool is_zero = value.bytes.find_first_not_of('\0') == std::string::npos;
  op->set_type(is_zero ? "fill_constant" : "assign_value");
  NewOp added(op);
  added.Int("dtype", value.meta.dtype);
  if (is_zero) {
    added.Longs("shape", value.meta.dims).Float("value", 0).Text("str_value", "0");
    return absl::OkStatus();
  }
  added.Ints("shape", value.meta.dims);
  return Annotate(name, SetNumbers(value.bytes, value.meta.dtype, op->add_attrs()));
}

}  // namespace

absl::StatusOr<Program> ImportProgram(FileBytes file) {
  WEFT_ASSIGN_OR_RETURN(const Archive archive, Archive::Open(file));
  WEFT_ASSIGN_OR_RETURN(const Graph graph, archive.ReadGraph());
  WEFT_ASSIGN_OR_RETURN(const Translation translation, Translate(graph));
  WEFT_ASSIGN_OR_RETURN(Program program, Program::FromProto(translation.desc));
  WEFT_ASSIGN_OR_RETURN(const std::string setting, archive.ReadSetting());
  program.set_setting(setting);
  program.set_origin(std::make_shared<Import>(std::move(file)));
  return program;
}

std::map<std::string, std::string> ReadOperators() { return Translator::Operators(); }

const Import* ImportOf(const Program& program) {
  return dynamic_cast<const Import*>(program.origin().get());
}

absl::StatusOr<std::map<std::string, Weight>> ReadStartValues(FileBytes file) {
  WEFT_ASSIGN_OR_RETURN(const Archive archive, Archive::Open(std::move(file)));
  WEFT_ASSIGN_OR_RETURN(const Graph graph, archive.ReadGraph());
  WEFT_ASSIGN_OR_RETURN(const Translation translation, Translate(graph));
  WEFT_ASSIGN_OR_RETURN(auto values, archive.ReadWeights(graph));
  for (const auto& [name, rate] : translation.rates) {
    const float value = static_cast<float>(rate);
    const std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
    values.emplace(name, Weight{{pb::VarType::FP32, {1}}, bytes});
  }
  return values;
}

absl::StatusOr<Program> ImportStartup(FileBytes file) {
  WEFT_ASSIGN_OR_RETURN(const auto values, ReadStartValues(std::move(file)));
  pb::ProgramDesc desc;
  desc.mutable_version()->set_version(kPaddle3);
  pb::BlockDesc* const block = desc.add_blocks();
  block->set_idx(0);
  block->set_parent_idx(-1);
  for (const auto& [name, value] : values) {
    WEFT_RETURN_IF_ERROR(AddInitializer(name, value, block));
  }
  return Program::FromProto(desc);
}

}  // namespace weft::pt2
