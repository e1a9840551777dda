#include "ops/cpu/op_vectors_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <type_traits>
#include <variant>

#include "absl/strings/escaping.h"
#include "base/testing/archive.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;

// Ends the process with the message.
void Require(bool holds, const std::string& message) {
  if (holds) return;
  std::fprintf(stderr, "op vectors: %s\n", message.c_str());
  std::abort();
}

// One case per line.
std::vector<Json> ParseLines(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Json> cases;
  for (std::string line; std::getline(lines, line);) cases.push_back(Json::parse(line));
  return cases;
}

}  // namespace

std::vector<Json> ReadArchivedVectors(const std::string& name) {
  static const auto* const files =
      new std::map<std::string, std::string>(*ReadTarXz("tests/data/op_vectors/op_vectors.tar.xz"));
  return ParseLines(files->at(name));
}

std::vector<Json> ReadVectors(const std::string& name) {
  std::ifstream file("tests/data/op_vectors/" + name);
  Require(file.is_open(), name);
  return ParseLines({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

Tensor TensorFromJson(const Json& json) {
  Dims dims;
  for (int64_t dim : json["shape"]) dims.push_back(dim);
  const DType dtype = *ParseDType(json["dtype"].get<std::string>());
  Tensor tensor;
  if (json.contains("rows")) {
    const int64_t num_rows = dims[0];
    dims[0] = json["height"];
    tensor.ResizeRows(dtype, dims, num_rows);
    const auto rows = json["rows"].get<std::vector<int64_t>>();
    Require(static_cast<int64_t>(rows.size()) == num_rows, "not as many rows as the shape says");
    std::copy(rows.begin(), rows.end(), tensor.mutable_rows().begin());
  } else {
    tensor.Resize(dtype, dims);
  }
  std::string bytes = absl::HexStringToBytes(json["hex"].get<std::string>());
  const size_t width = SizeOf(tensor.dtype());
  for (size_t i = 0; i < bytes.size(); i += width) {
    std::reverse(bytes.begin() + i, bytes.begin() + i + width);
  }
  Require(bytes.size() == tensor.bytes(), "not as many bytes as the shape says");
  std::memcpy(tensor.raw(), bytes.data(), tensor.bytes());
  return tensor;
}

AttrValues AttrsFromJson(absl::string_view op, const Json& json) {
  AttrValues attrs;
  for (const auto& attr : json.items()) {
    const AttrSchema* schema = FindOpSchema(op)->FindAttr(attr.key());
    if (schema == nullptr) continue;  // a switch of a back end
    std::visit(
        [&](const auto& like) {
          using T = std::decay_t<decltype(like)>;
          if constexpr (std::is_same_v<T, float>) {
            const bool is_text = attr.value().is_string();  // "inf"
            attrs.emplace_back(attr.key(), is_text ? std::stof(attr.value().get<std::string>())
                                                   : attr.value().get<float>());
          } else if constexpr (!std::is_same_v<T, BlockRef> &&
                               !std::is_same_v<T, std::vector<Scalar>>) {
            attrs.emplace_back(attr.key(), attr.value().get<T>());
          }
        },
        schema->default_value);
  }
  return attrs;
}

}  // namespace weft::testing
