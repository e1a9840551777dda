// The JSON of a graph as text, which keeps the bytes of what is not edited.
#ifndef WEFT_PROTO_FORMATS_PT2_MODEL_TEXT_H_
#define WEFT_PROTO_FORMATS_PT2_MODEL_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::pt2 {

// Where things stand in models/model.json. Elements of lists are in the order of the file.
struct ModelText {
  std::vector<absl::string_view> nodes, outputs, output_specs;
  absl::flat_hash_map<std::string, absl::string_view> metas;  // by value
  const char* end_of_metas = nullptr;                         // behind the last one
};

// The text must outlive the result. InvalidArgument: no such JSON. O(bytes).
absl::StatusOr<ModelText> FindParts(absl::string_view text);

// What a value is called now.
using Rename = absl::FunctionRef<std::string(absl::string_view)>;

// A node whose arguments are renamed, or itself and what it makes.
absl::StatusOr<std::string> RenameInputs(absl::string_view node, Rename rename);
absl::StatusOr<std::string> RenameOutputs(absl::string_view node, Rename rename);
// An output of the graph, or its specification.
absl::StatusOr<std::string> RenameResult(absl::string_view output, Rename rename);

struct TextEdit {
  absl::string_view before;  // of the text
  std::string after;
};
std::string ApplyEdits(absl::string_view text, std::vector<TextEdit> edits);

// A node that a pass has inserted.
class NewNode {
 public:
  explicit NewNode(absl::string_view target) : target_(target) {}
  NewNode& Tensor(absl::string_view argument, absl::string_view value);
  NewNode& Tensors(absl::string_view argument, const std::vector<std::string>& values);
  NewNode& Number(absl::string_view argument, double value);
  NewNode& Int(absl::string_view argument, int64_t value);
  NewNode& Text(absl::string_view argument, absl::string_view value);
  NewNode& DType(absl::string_view argument, int64_t scalar_type);
  NewNode& Metadata(std::string json);  // an object

  // One that makes a value, which has the name of the node; or a list of them.
  std::string Make(absl::string_view value) const;
  std::string MakeList(absl::string_view name, const std::vector<std::string>& values) const;

 private:
  enum class Passed : uint8_t { kByPosition = 1, kByName = 2 };  // torch's ArgumentKind
  NewNode& Add(absl::string_view argument, absl::string_view kind, absl::string_view json,
               Passed passed = Passed::kByPosition);
  std::string Json(absl::string_view name, absl::string_view outputs) const;
  std::string target_, inputs_, metadata_ = "{}";
};

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_MODEL_TEXT_H_
