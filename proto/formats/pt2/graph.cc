#include "proto/formats/pt2/graph.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/available_memory.h"
#include "base/status_macros.h"

namespace weft::pt2 {
namespace {

using Json = nlohmann::json;

constexpr char kModel[] = "models/model.json";
constexpr char kSchedules[] = "extra/lr_schedules.json";
constexpr char kWeights[] = "data/weights/";
constexpr char kSetting[] = "extra/weft_setting.json";
constexpr char kArchiveVersion[] = "0";
// The schema of the JSON: torch/_export/serde/schema.yaml. Minor versions only add.
constexpr int kMajor = 8, kMinor = 20;

// What a message shows of a value: of a structure, the type and the keys alone.
std::string Shown(const Json* json) {
  if (json == nullptr) return "nothing";
  std::string text = json->type_name();
  if (!json->is_structured()) {
    text = json->dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  } else if (json->is_object()) {
    for (const auto& [key, value] : json->items()) {
      absl::StrAppend(&text, " ", key, value.is_structured() ? "" : "=" + Shown(&value));
    }
  }
  constexpr size_t kShown = 80;
  return text.size() > kShown ? absl::StrCat(text.substr(0, kShown), "...") : text;
}

absl::Status BadJson(absl::string_view where, absl::string_view expected, const Json* found) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": expected ", expected, ", found ", Shown(found)));
}

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<const Json*> Get(const Json& object, const char* key, Json::value_t type,
                                absl::string_view where) {
  const Json* const found = Find(object, key);
  const bool fits =
      found != nullptr && (found->type() == type ||
                           (type == Json::value_t::number_integer && found->is_number_integer()));
  if (fits) return found;
  return BadJson(absl::StrCat(where, ", key ", key),
                 absl::StrCat("JSON of type ", Json(type).type_name()), found);
}

absl::StatusOr<const Json*> GetList(const Json& object, const char* key, absl::string_view where) {
  return Get(object, key, Json::value_t::array, where);
}

absl::StatusOr<const Json*> GetObject(const Json& object, const char* key,
                                      absl::string_view where) {
  return Get(object, key, Json::value_t::object, where);
}

absl::StatusOr<std::string> GetText(const Json& object, const char* key, absl::string_view where) {
  WEFT_ASSIGN_OR_RETURN(const Json* const text, Get(object, key, Json::value_t::string, where));
  return text->get<std::string>();
}

absl::StatusOr<int64_t> GetInt(const Json& object, const char* key, absl::string_view where) {
  WEFT_ASSIGN_OR_RETURN(const Json* const number,
                        Get(object, key, Json::value_t::number_integer, where));
  return number->get<int64_t>();
}

// The alternative of a union, {"as_int": 3} or {"parameter": {...}}: a key and its value.
absl::optional<std::pair<std::string, const Json*>> Alternative(const Json& value) {
  if (!value.is_object() || value.size() != 1) return absl::nullopt;
  return std::make_pair(value.begin().key(), &value.begin().value());
}

// Splits "Integer(6), Mul(a, b)" at the commas that no parenthesis holds.
std::vector<absl::string_view> SplitArguments(absl::string_view text) {
  std::vector<absl::string_view> arguments;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    arguments.push_back(absl::StripAsciiWhitespace(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return arguments;
}

// An expression as SymPy's srepr writes it.
Size ParseSize(absl::string_view text, int depth = 0) {
  constexpr int kMaxDepth = 8;
  Size size;
  absl::string_view rest = text;
  int64_t number;
  if (absl::ConsumePrefix(&rest, "Integer(") && absl::ConsumeSuffix(&rest, ")") &&
      absl::SimpleAtoi(rest, &number) && number > 0) {
    size.factor = number;
    return size;
  }
  if (depth < kMaxDepth && absl::ConsumePrefix(&rest, "Mul(") && absl::ConsumeSuffix(&rest, ")")) {
    for (const absl::string_view factor : SplitArguments(rest)) {
      size *= ParseSize(factor, depth + 1);
    }
    return size;
  }
  size.symbols.emplace_back(text);
  return size;
}

// A number, or a symbol or expression.
absl::StatusOr<Size> ReadSize(const Json& json, absl::string_view where) {
  const auto size = Alternative(json);
  if (size.has_value() && size->first == "as_int" && size->second->is_number_integer()) {
    const int64_t number = size->second->get<int64_t>();
    if (number >= -1) return Size{number, {}};
  }
  if (size.has_value() && size->first == "as_name" && size->second->is_string()) {
    return Size{1, {size->second->get<std::string>()}};
  }
  if (size.has_value() && size->first == "as_expr") {
    const Json* const text = Find(*size->second, "expr_str");
    if (text != nullptr && text->is_string()) return ParseSize(text->get<std::string>());
  }
  return BadJson(where, "a size", &json);
}

// -1 of a symbol or expression.
absl::StatusOr<int64_t> ReadDim(const Json& json, absl::string_view where) {
  WEFT_ASSIGN_OR_RETURN(const Size size, ReadSize(json, where));
  return size.is_known() ? size.factor : -1;
}

absl::StatusOr<pb::VarType::Type> ReadDType(int64_t number, absl::string_view where) {
  switch (number) {  // torch/_export/serde/schema.py: ScalarType
    case 1:
      return pb::VarType::UINT8;
    case 2:
      return pb::VarType::INT8;
    case 3:
      return pb::VarType::INT16;
    case 4:
      return pb::VarType::INT32;
    case 5:
      return pb::VarType::INT64;
    case 6:
      return pb::VarType::FP16;
    case 7:
      return pb::VarType::FP32;
    case 8:
      return pb::VarType::FP64;
    case 12:
      return pb::VarType::BOOL;
    case 13:
      return pb::VarType::BF16;
    default:
      return absl::UnimplementedError(absl::StrCat(
          where,
          ": expected an element type among uint8, int8 to int64, fp16, bf16, fp32, fp64 "
          "and bool, found number ",
          number, " of torch's ScalarType"));
  }
}

absl::StatusOr<TensorMeta> ReadMeta(const Json& json, absl::string_view where) {
  TensorMeta meta;
  WEFT_ASSIGN_OR_RETURN(const int64_t dtype, GetInt(json, "dtype", where));
  WEFT_ASSIGN_OR_RETURN(meta.dtype, ReadDType(dtype, where));
  WEFT_ASSIGN_OR_RETURN(const Json* const sizes, GetList(json, "sizes", where));
  for (const Json& size : *sizes) {
    WEFT_ASSIGN_OR_RETURN(meta.sizes.emplace_back(), ReadSize(size, where));
    meta.dims.push_back(meta.sizes.back().is_known() ? meta.sizes.back().factor : -1);
  }
  return meta;
}

// Of an argument or an output: its tensor, or those of its list.
absl::StatusOr<std::vector<std::string>> TensorsIn(const Json& json, absl::string_view where) {
  std::vector<std::string> tensors;
  if (const Json* const one = Find(json, "as_tensor")) {
    WEFT_ASSIGN_OR_RETURN(tensors.emplace_back(), GetText(*one, "name", where));
  }
  if (const Json* const several = Find(json, "as_tensors")) {
    if (!several->is_array()) return BadJson(where, "a list of tensors", several);
    for (const Json& one : *several) {
      WEFT_ASSIGN_OR_RETURN(tensors.emplace_back(), GetText(one, "name", where));
    }
  }
  return tensors;
}

size_t SizeOf(pb::VarType::Type dtype) {
  switch (dtype) {
    case pb::VarType::FP64:
    case pb::VarType::INT64:
      return 8;
    case pb::VarType::FP32:
    case pb::VarType::INT32:
      return 4;
    case pb::VarType::FP16:
    case pb::VarType::BF16:
    case pb::VarType::INT16:
      return 2;
    default:
      return 1;
  }
}

std::string ToString(const TensorMeta& meta) {
  return absl::StrCat(pb::VarType::Type_Name(meta.dtype), "[", absl::StrJoin(meta.dims, ", "), "]");
}

// The bytes of a tensor of known sizes that lies row-major.
absl::StatusOr<uint64_t> CheckRowMajor(const Json& json, const TensorMeta& meta,
                                       absl::string_view where) {
  WEFT_ASSIGN_OR_RETURN(const Json* const strides, GetList(json, "strides", where));
  const absl::Status not_row_major = absl::UnimplementedError(
      absl::StrCat(where,
                   ": expected a tensor that lies row-major in storage of its own; make it so with "
                   ".contiguous().clone() before the export"));
  const Json* const offset = Find(json, "storage_offset");
  if (offset != nullptr && *offset != Json{{"as_int", 0}}) return not_row_major;
  if (strides->size() != meta.dims.size()) return not_row_major;
  uint64_t elements = 1;
  for (size_t i = meta.dims.size(); i-- > 0;) {
    WEFT_ASSIGN_OR_RETURN(const int64_t stride, ReadDim((*strides)[i], where));
    if (meta.dims[i] < 0) return BadJson(where, "known sizes", &json);
    if (meta.dims[i] > 1 && static_cast<uint64_t>(stride) != elements) return not_row_major;
    const uint64_t dim = std::max<int64_t>(meta.dims[i], 1);
    if (elements > std::numeric_limits<int64_t>::max() / 16 / dim) {
      return BadJson(where, "fewer elements", &json);
    }
    elements *= dim;
  }
  const bool is_empty = std::find(meta.dims.begin(), meta.dims.end(), 0) != meta.dims.end();
  return is_empty ? 0 : elements * SizeOf(meta.dtype);
}

}  // namespace

Size& Size::operator*=(const Size& other) {
  if (__builtin_mul_overflow(factor, other.factor, &factor)) {
    symbols.push_back("more than fits");
    factor = 1;
  }
  symbols.insert(symbols.end(), other.symbols.begin(), other.symbols.end());
  std::sort(symbols.begin(), symbols.end());
  return *this;
}

absl::StatusOr<int64_t> ScalarTypeOf(pb::VarType::Type dtype) {
  constexpr int64_t kLast = 13;
  for (int64_t number = 1; number <= kLast; ++number) {
    const absl::StatusOr<pb::VarType::Type> of_number = ReadDType(number, "");
    if (of_number.ok() && *of_number == dtype) return number;
  }
  return absl::UnimplementedError(
      absl::StrCat("expected an element type of PyTorch, found ", pb::VarType::Type_Name(dtype)));
}

Size TensorMeta::NumElements() const {
  Size product;
  for (const Size& size : sizes) product *= size;
  return product;
}

// --- Nodes
// -----------------------------------------------------------------------------------------

std::string Node::DebugName() const { return absl::StrCat("node ", name, " (", target, ")"); }

absl::Status Node::Error(absl::string_view what) const {
  // The innermost frame, and its source.
  std::string line;
  const std::vector<std::string> lines = absl::StrSplit(stack, '\n', absl::SkipWhitespace());
  for (const std::string& text : lines) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(text);
    if (absl::StartsWith(stripped, "File ")) line.clear();
    absl::StrAppend(&line, line.empty() ? "" : ": ", stripped);
  }
  return absl::UnimplementedError(
      absl::StrCat(DebugName(), ": ", what, line.empty() ? "" : "; ", line));
}

absl::Status Node::ArgumentError(absl::string_view argument, absl::string_view expected) const {
  const Json* const found = Find(argument);
  return Error(BadJson(absl::StrCat("argument ", argument), expected, found).message());
}

const Json* Node::Find(absl::string_view argument) const {
  const auto found = arguments_.find(argument);
  if (found == arguments_.end() || found->second->contains("as_none")) return nullptr;
  return found->second;
}

bool Node::IsTensor(absl::string_view argument) const {
  const Json* const found = Find(argument);
  return found != nullptr && found->contains("as_tensor");
}

absl::StatusOr<std::string> Node::Tensor(absl::string_view argument) const {
  if (!IsTensor(argument)) return ArgumentError(argument, "a tensor");
  return GetText(*pt2::Find(*Find(argument), "as_tensor"), "name", DebugName());
}

absl::StatusOr<std::vector<std::string>> Node::Tensors() const {
  std::vector<std::string> tensors;
  for (const auto& [name, json] : arguments_) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> some, TensorsIn(*json, DebugName()));
    tensors.insert(tensors.end(), some.begin(), some.end());
  }
  return tensors;
}

absl::StatusOr<std::vector<std::string>> Node::TensorList(absl::string_view argument) const {
  const Json* const found = Find(argument);
  if (found == nullptr || !found->contains("as_tensors")) {
    return ArgumentError(argument, "a list of tensors");
  }
  return TensorsIn(*found, DebugName());
}

std::string Node::Symbol(absl::string_view argument) const {
  const Json* const found = Find(argument);
  const Json* const symbol = found == nullptr ? nullptr : pt2::Find(*found, "as_sym_int");
  const Json* const name = symbol == nullptr ? nullptr : pt2::Find(*symbol, "as_name");
  return name != nullptr && name->is_string() ? name->get<std::string>() : "";
}

absl::StatusOr<double> Node::Number(absl::string_view argument,
                                    absl::optional<double> otherwise) const {
  const Json* const found = Find(argument);
  if (found == nullptr && otherwise.has_value()) return *otherwise;
  const auto value = found == nullptr ? absl::nullopt : Alternative(*found);
  if (value.has_value() && value->first == "as_float" && value->second->is_string()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (*value->second == "Infinity") return kInfinity;
    if (*value->second == "-Infinity") return -kInfinity;
  }
  const bool is_number = value.has_value() && value->second->is_number() &&
                         (value->first == "as_int" || value->first == "as_float");
  return is_number ? absl::StatusOr<double>(value->second->get<double>())
                   : ArgumentError(argument, "a number");
}

absl::StatusOr<int64_t> Node::Int(absl::string_view argument,
                                  absl::optional<int64_t> otherwise) const {
  const Json* const found = Find(argument);
  if (found == nullptr && otherwise.has_value()) return *otherwise;
  const Json* const value = found == nullptr ? nullptr : pt2::Find(*found, "as_int");
  return value != nullptr && value->is_number_integer()
             ? absl::StatusOr<int64_t>(value->get<int64_t>())
             : ArgumentError(argument, "an integer");
}

absl::StatusOr<bool> Node::Bool(absl::string_view argument, absl::optional<bool> otherwise) const {
  const Json* const found = Find(argument);
  if (found == nullptr && otherwise.has_value()) return *otherwise;
  const Json* const value = found == nullptr ? nullptr : pt2::Find(*found, "as_bool");
  return value != nullptr && value->is_boolean() ? absl::StatusOr<bool>(value->get<bool>())
                                                 : ArgumentError(argument, "true or false");
}

absl::StatusOr<std::string> Node::Text(absl::string_view argument,
                                       absl::string_view otherwise) const {
  const Json* const found = Find(argument);
  if (found == nullptr) return std::string(otherwise);
  const Json* const value = pt2::Find(*found, "as_string");
  return value != nullptr && value->is_string()
             ? absl::StatusOr<std::string>(value->get<std::string>())
             : ArgumentError(argument, "a text");
}

absl::StatusOr<std::vector<int64_t>> Node::Ints(
    absl::string_view argument, absl::optional<std::vector<int64_t>> otherwise) const {
  const Json* const found = Find(argument);
  if (found == nullptr && otherwise.has_value()) return *std::move(otherwise);
  const auto value = found == nullptr ? absl::nullopt : Alternative(*found);
  const absl::Status error = ArgumentError(argument, "a list of integers");
  if (!value.has_value() || !value->second->is_array()) return error;
  std::vector<int64_t> ints;
  for (const Json& json : *value->second) {
    if (value->first == "as_ints" && json.is_number_integer()) {
      ints.push_back(json.get<int64_t>());
    } else if (value->first == "as_sym_ints") {
      WEFT_ASSIGN_OR_RETURN(ints.emplace_back(), ReadDim(json, DebugName()));
    } else {
      return error;
    }
  }
  return ints;
}

// --- The graph
// -------------------------------------------------------------------------------------

class GraphReader {
 public:
  explicit GraphReader(Json document) {
    graph_.document_ = std::make_shared<const Json>(std::move(document));
  }

  absl::StatusOr<Graph> Run() {
    const Json& document = *graph_.document_;
    WEFT_RETURN_IF_ERROR(CheckVersion(document));
    WEFT_ASSIGN_OR_RETURN(const Json* const module, GetObject(document, "graph_module", kModel));
    WEFT_ASSIGN_OR_RETURN(const Json* const graph, GetObject(*module, "graph", kModel));
    WEFT_ASSIGN_OR_RETURN(const Json* const signature, GetObject(*module, "signature", kModel));
    WEFT_ASSIGN_OR_RETURN(const Json* const tensors, GetObject(*graph, "tensor_values", kModel));
    for (const auto& [name, meta] : tensors->items()) {
      WEFT_ASSIGN_OR_RETURN(graph_.tensors[name],
                            ReadMeta(meta, absl::StrCat(kModel, ", value ", name)));
    }
    if (const Json* const symbols = Find(*graph, "sym_int_values")) {
      for (const auto& [name, size] : symbols->items()) {
        WEFT_ASSIGN_OR_RETURN(graph_.symbols[name],
                              ReadSize(size, absl::StrCat(kModel, ", number ", name)));
      }
    }
    WEFT_ASSIGN_OR_RETURN(const Json* const inputs, GetList(*signature, "input_specs", kModel));
    for (const Json& input : *inputs) WEFT_RETURN_IF_ERROR(ReadInput(input));
    WEFT_ASSIGN_OR_RETURN(const Json* const nodes, GetList(*graph, "nodes", kModel));
    for (const Json& node : *nodes) WEFT_RETURN_IF_ERROR(ReadNode(node));
    WEFT_ASSIGN_OR_RETURN(const Json* const outputs, GetList(*signature, "output_specs", kModel));
    for (const Json& output : *outputs) WEFT_RETURN_IF_ERROR(ReadOutput(output));
    return std::move(graph_);
  }

 private:
  static absl::Status CheckVersion(const Json& document) {
    WEFT_ASSIGN_OR_RETURN(const Json* const version, GetObject(document, "schema_version", kModel));
    WEFT_ASSIGN_OR_RETURN(const int64_t major, GetInt(*version, "major", kModel));
    WEFT_ASSIGN_OR_RETURN(const int64_t minor, GetInt(*version, "minor", kModel));
    if (major == kMajor && minor >= 0 && minor <= kMinor) return absl::OkStatus();
    const Json* const torch = Find(document, "torch_version");
    return absl::InvalidArgumentError(
        absl::StrCat(kModel, ": expected schema version ", kMajor, ".0 to ", kMajor, ".", kMinor,
                     ", found ", major, ".", minor,
                     torch != nullptr && torch->is_string()
                         ? absl::StrCat(", of PyTorch ", torch->get<std::string>())
                         : "",
                     "; docs/pytorch.md has the versions of PyTorch"));
  }

  absl::Status Make(const std::string& value, absl::string_view where) {
    if (graph_.tensors.find(value) == graph_.tensors.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": value ", value, " has no type in tensor_values"));
    }
    if (made_.emplace(value, true).second) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(where, ": value ", value, " is made twice"));
  }

  absl::Status CheckIsMade(const std::string& value, absl::string_view where) const {
    if (made_.find(value) != made_.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": value ", value, " is read before a node makes it"));
  }

  absl::Status ReadInput(const Json& json) {
    const auto spec = Alternative(json);
    const std::string where = absl::StrCat(kModel, ", input_specs");
    if (!spec.has_value()) return BadJson(where, "one kind of input", &json);
    const auto& [kind, body] = *spec;
    WEFT_ASSIGN_OR_RETURN(const Json* arg, GetObject(*body, "arg", where));
    Input input;
    if (kind == "user_input") {
      const Json* const tensor = Find(*arg, "as_tensor");
      if (tensor == nullptr) {
        return BadJson(where, "tensors as inputs of the step", &json);
      }
      input.kind = Input::Kind::kData;
      WEFT_ASSIGN_OR_RETURN(input.value, GetText(*tensor, "name", where));
      input.name = input.value;
    } else if (kind == "parameter" || kind == "buffer") {
      const bool is_parameter = kind == "parameter";
      input.kind = is_parameter ? Input::Kind::kParameter : Input::Kind::kBuffer;
      WEFT_ASSIGN_OR_RETURN(input.name,
                            GetText(*body, is_parameter ? "parameter_name" : "buffer_name", where));
      WEFT_ASSIGN_OR_RETURN(input.value, GetText(*arg, "name", where));
    } else {
      return absl::UnimplementedError(
          absl::StrCat(where, ": expected parameters, buffers and inputs, found a ", kind,
                       "; pass a constant tensor to the step as state (register_buffer)"));
    }
    WEFT_RETURN_IF_ERROR(Make(input.value, where));
    if (!names_.emplace(input.name, input.kind != Input::Kind::kData).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", input.name, " is there twice"));
    }
    graph_.inputs.push_back(std::move(input));
    return absl::OkStatus();
  }

  static int NumRanksIn(const Json& metadata) {
    const Json* const custom = Find(metadata, "custom");
    if (custom == nullptr || !custom->is_string()) return 0;
    const Json json = Json::parse(custom->get<std::string>(), nullptr, /*allow_exceptions=*/false);
    const Json* const nranks = Find(json, kNumRanksKey);
    if (nranks == nullptr || !nranks->is_number_integer()) return 0;
    const int64_t number = nranks->get<int64_t>();
    return number >= 1 && number <= std::numeric_limits<int>::max() ? static_cast<int>(number) : 0;
  }

  absl::Status ReadNode(const Json& json) {
    Node node;
    const std::string where = absl::StrCat(kModel, ", node ", graph_.nodes.size());
    WEFT_ASSIGN_OR_RETURN(node.target, GetText(json, "target", where));
    node.target = std::string(absl::StripPrefix(node.target, "torch.ops."));
    WEFT_ASSIGN_OR_RETURN(const Json* const inputs, GetList(json, "inputs", where));
    WEFT_ASSIGN_OR_RETURN(const Json* const outputs, GetList(json, "outputs", where));
    if (const Json* const name = Find(json, "name"); name != nullptr && name->is_string()) {
      node.name = name->get<std::string>();
    }
    if (const Json* const metadata = Find(json, "metadata")) {
      const Json* const stack = Find(*metadata, "stack_trace");
      if (stack != nullptr && stack->is_string()) node.stack = stack->get<std::string>();
      node.nranks = NumRanksIn(*metadata);
    }
    for (const Json& input : *inputs) {
      WEFT_ASSIGN_OR_RETURN(const std::string name, GetText(input, "name", where));
      WEFT_ASSIGN_OR_RETURN(const Json* const arg, GetObject(input, "arg", where));
      node.arguments_[name] = arg;
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> reads, node.Tensors());
    for (const std::string& value : reads) WEFT_RETURN_IF_ERROR(CheckIsMade(value, where));
    for (const Json& output : *outputs) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> values, TensorsIn(output, where));
      for (const std::string& value : values) WEFT_RETURN_IF_ERROR(Make(value, where));
      node.outputs.insert(node.outputs.end(), values.begin(), values.end());
      if (values.empty()) node.outputs.emplace_back();  // a size, or nothing
    }
    // An operator's name, before that of its overload.
    const absl::string_view operation =
        absl::string_view(node.target).substr(0, node.target.rfind('.'));
    if (absl::EndsWith(operation, "_") && !absl::EndsWith(operation, "__")) {
      return node.Error(
          "expected an operator that makes new values, found one that changes its input; export "
          "with run_decompositions({})");
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ReadOutput(const Json& json) {
    const auto spec = Alternative(json);
    const std::string where = absl::StrCat(kModel, ", output_specs");
    if (!spec.has_value()) return BadJson(where, "one kind of output", &json);
    const auto& [kind, body] = *spec;
    WEFT_ASSIGN_OR_RETURN(const Json* arg, GetObject(*body, "arg", where));
    if (kind == "user_output" || kind == "loss_output") {
      const Json* const tensor = kind == "user_output" ? Find(*arg, "as_tensor") : arg;
      if (tensor == nullptr) return absl::OkStatus();  // a number, which nobody trains by
      WEFT_ASSIGN_OR_RETURN(std::string value, GetText(*tensor, "name", where));
      WEFT_RETURN_IF_ERROR(CheckIsMade(value, where));
      graph_.results.push_back(std::move(value));
      return absl::OkStatus();
    }
    if (kind != "parameter_mutation" && kind != "buffer_mutation") {
      return absl::UnimplementedError(absl::StrCat(
          where, ": expected new values of parameters and buffers, and results, found a ", kind));
    }
    WEFT_ASSIGN_OR_RETURN(
        const std::string name,
        GetText(*body, kind == "parameter_mutation" ? "parameter_name" : "buffer_name", where));
    WEFT_ASSIGN_OR_RETURN(std::string value, GetText(*arg, "name", where));
    WEFT_RETURN_IF_ERROR(CheckIsMade(value, where));
    const auto input = names_.find(name);
    if (input == names_.end() || !input->second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", name, " is neither a parameter nor a buffer"));
    }
    if (!graph_.mutations.emplace(name, std::move(value)).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", name, " has two new values"));
    }
    return absl::OkStatus();
  }

  Graph graph_;
  absl::flat_hash_map<std::string, bool> made_;   // values
  absl::flat_hash_map<std::string, bool> names_;  // of inputs: whether they may change
};

// --- The archive
// -----------------------------------------------------------------------------------

bool LooksLikeArchive(absl::string_view bytes) {
  constexpr size_t kEnd = 1 << 20;  // has the names of the last entries
  const size_t begin = bytes.size() - std::min(bytes.size(), kEnd);
  return absl::StartsWith(bytes, "PK\3\4") && absl::StrContains(bytes.substr(begin), kModel);
}

absl::StatusOr<Archive> Archive::Open(FileBytes file) {
  const uint64_t bytes = file.bytes.size();
  absl::StatusOr<ZipArchive> zip = ZipArchive::Open(std::move(file));
  WEFT_RETURN_IF_ERROR(Annotate("not an archive of torch.export.save", zip.status()));
  Archive archive(*std::move(zip), bytes);
  for (uint64_t i = 0; i < archive.zip_.num_entries(); ++i) {
    const std::string name = archive.zip_.NameOf(i);
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    if (name.substr(slash + 1) == kModel) archive.folder_ = name.substr(0, slash + 1);
    if (!archive.entries_.emplace(name.substr(slash + 1), i).second) {
      return absl::InvalidArgumentError(absl::StrCat("entry ", name, " is there twice"));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const std::string version, archive.Read("archive_version"));
  if (absl::StripAsciiWhitespace(version) != kArchiveVersion) {
    return absl::InvalidArgumentError(absl::StrCat("archive_version: expected ", kArchiveVersion,
                                                   ", found ", version.substr(0, 20)));
  }
  WEFT_ASSIGN_OR_RETURN(const std::string order, archive.Read("byteorder"));
  if (order != "little") {
    return absl::InvalidArgumentError(
        absl::StrCat("byteorder: expected little, found ", order.substr(0, 20)));
  }
  return archive;
}

absl::StatusOr<std::string> Archive::Read(absl::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "not an archive of torch.export.save: expected an entry ", name, ", found none"));
  }
  std::string bytes;
  const absl::Status status = zip_.Visit(found->second, [&](ZipEntry& entry) -> absl::Status {
    if (entry.size() > file_bytes_) {
      return absl::InvalidArgumentError("expected stored data, found deflated ones");
    }
    WEFT_RETURN_IF_ERROR(CheckFitsMemory("it", entry.size(), AvailableMemory()));
    bytes.resize(entry.size());
    WEFT_RETURN_IF_ERROR(entry.Read(bytes.data(), bytes.size()));
    return entry.Finish();
  });
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat("entry ", name), status));
  return bytes;
}

absl::StatusOr<Json> Archive::ReadJson(absl::string_view name) const {
  WEFT_ASSIGN_OR_RETURN(const std::string text, Read(name));
  // Without exceptions, and without the position: as in the reader of safetensors.
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  return absl::InvalidArgumentError(absl::StrCat("entry ", name, ": not JSON"));
}

absl::StatusOr<std::string> Archive::ReadGraphText() const { return Read(kModel); }

std::string Archive::graph_name() const { return absl::StrCat(folder_, kModel); }

absl::StatusOr<std::string> Archive::ReadSetting() const {
  return entries_.contains(kSetting) ? Read(kSetting) : std::string();
}

std::string Archive::setting_name() const { return absl::StrCat(folder_, kSetting); }

absl::StatusOr<Graph> Archive::ReadGraph() const {
  WEFT_ASSIGN_OR_RETURN(Json json, ReadJson(kModel));
  WEFT_ASSIGN_OR_RETURN(Graph graph, GraphReader(std::move(json)).Run());
  WEFT_RETURN_IF_ERROR(ReadSchedules(&graph));
  return graph;
}

// Of an entry that torch knows nothing of: tools/pytorch/export_step.py adds it.
absl::Status Archive::ReadSchedules(Graph* graph) const {
  if (!entries_.contains(kSchedules)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Json json, ReadJson(kSchedules));
  if (!json.is_array()) return BadJson(kSchedules, "a list", &json);
  for (const Json& one : json) {
    const Json* const rate = Find(one, "rate");
    if (rate == nullptr || !rate->is_number()) return BadJson(kSchedules, "rates", &one);
    WEFT_ASSIGN_OR_RETURN(graph->schedules[rate->get<double>()],
                          GetText(one, "schedule", kSchedules));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, Weight>> Archive::ReadWeights(const Graph& graph) const {
  const std::string path = absl::StrCat(kWeights, "model_weights_config.json");
  WEFT_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  WEFT_ASSIGN_OR_RETURN(const Json* const config, GetObject(json, "config", path));
  std::map<std::string, Weight> weights;
  for (const Input& input : graph.inputs) {
    if (input.kind == Input::Kind::kData) continue;
    const std::string where = absl::StrCat("weight ", input.name);
    const auto found = config->find(input.name);
    if (found == config->end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", path, " does not have it, but the graph begins with it"));
    }
    const Json* const pickle = Find(*found, "use_pickle");
    if (pickle != nullptr && *pickle != false) {
      return absl::UnimplementedError(
          absl::StrCat(where, ": expected a plain tensor, found a pickle, which is not read"));
    }
    WEFT_ASSIGN_OR_RETURN(const std::string file, GetText(*found, "path_name", where));
    WEFT_ASSIGN_OR_RETURN(const Json* const meta, GetObject(*found, "tensor_meta", where));
    Weight weight;
    WEFT_ASSIGN_OR_RETURN(weight.meta, ReadMeta(*meta, where));
    const TensorMeta& in_graph = graph.tensors.at(input.value);
    if (weight.meta.dtype != in_graph.dtype || weight.meta.dims != in_graph.dims) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected ", ToString(in_graph),
                                                     ", found ", ToString(weight.meta)));
    }
    WEFT_ASSIGN_OR_RETURN(const uint64_t bytes, CheckRowMajor(*meta, weight.meta, where));
    const absl::StatusOr<std::string> read = Read(absl::StrCat(kWeights, file));
    WEFT_RETURN_IF_ERROR(Annotate(where, read.status()));
    weight.bytes = *read;
    if (weight.bytes.size() != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", ToString(weight.meta), " takes ",
                                                     bytes, " bytes, found ", weight.bytes.size()));
    }
    const bool is_bool = weight.meta.dtype == pb::VarType::BOOL;
    if (is_bool && weight.bytes.find_first_not_of(std::string("\0\1", 2)) != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected bytes 0 and 1"));
    }
    weights.emplace(input.name, std::move(weight));
  }
  return weights;
}

}  // namespace weft::pt2
