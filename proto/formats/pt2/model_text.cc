#include "proto/formats/pt2/model_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/formats/pir/json_cursor.h"

namespace weft::pt2 {
namespace {

using pir::JsonCursor;

bool ReadElements(JsonCursor& cursor, std::vector<absl::string_view>* elements) {
  return cursor.ReadArray([&] { return cursor.SkipValue(&elements->emplace_back()); });
}

bool ReadMetas(JsonCursor& cursor, ModelText* parts) {
  return cursor.ReadObject([&](absl::string_view name) {
    absl::string_view meta;
    if (name.find('\\') != absl::string_view::npos) return cursor.Fail("a name without escapes");
    if (!cursor.SkipValue(&meta)) return false;
    parts->metas[std::string(name)] = meta;
    parts->end_of_metas = meta.data() + meta.size();
    return true;
  });
}

// Collects the edits that rename tensors. `is_argument`: below a key arg, or in a list of outputs,
// where a name is a value's; elsewhere it is an argument's.
class Renamer {
 public:
  Renamer(absl::string_view text, Rename rename) : text_(text), cursor_(text), rename_(rename) {}

  // `key`: of the object that the text is; empty: all of the text.
  absl::StatusOr<std::string> Run(absl::string_view key, bool is_argument) {
    if (key.empty()) {
      Walk(is_argument);
    } else {
      cursor_.ReadObject([&](absl::string_view found) {
        if (key == "outputs" && found == "name") return ReadName();
        return found == key ? Walk(is_argument) : cursor_.SkipValue();
      });
    }
    WEFT_RETURN_IF_ERROR(cursor_.status());
    return ApplyEdits(text_, std::move(edits_));
  }

 private:
  bool Walk(bool is_argument) {
    switch (cursor_.Peek()) {
      case '{':
        return cursor_.ReadObject([&](absl::string_view key) {
          if (is_argument && key == "name" && cursor_.Peek() == '"') return ReadName();
          return Walk(is_argument || key == "arg");
        });
      case '[':
        return cursor_.ReadArray([&] { return Walk(is_argument); });
      default:
        return cursor_.SkipValue();
    }
  }

  bool ReadName() {
    absl::string_view name;
    if (!cursor_.ReadString(&name)) return false;
    if (name.find('\\') != absl::string_view::npos) return cursor_.Fail("a name without escapes");
    std::string now = rename_(name);
    if (now != name) edits_.push_back({name, std::move(now)});
    return true;
  }

  absl::string_view text_;
  JsonCursor cursor_;
  Rename rename_;
  std::vector<TextEdit> edits_;
};

std::string TensorJson(absl::string_view value) {
  return absl::StrCat("{\"name\": \"", value, "\"}");
}

std::string TensorListJson(const std::vector<std::string>& values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ", ",
                                    [](std::string* out, const std::string& v) {
                                      absl::StrAppend(out, TensorJson(v));
                                    }),
                      "]");
}

}  // namespace

absl::StatusOr<ModelText> FindParts(absl::string_view text) {
  ModelText parts;
  JsonCursor cursor(text);
  const auto read_graph = [&](absl::string_view key) {
    if (key == "nodes") return ReadElements(cursor, &parts.nodes);
    if (key == "outputs") return ReadElements(cursor, &parts.outputs);
    if (key == "tensor_values") return ReadMetas(cursor, &parts);
    return cursor.SkipValue();
  };
  const auto read_signature = [&](absl::string_view key) {
    return key == "output_specs" ? ReadElements(cursor, &parts.output_specs) : cursor.SkipValue();
  };
  const auto read_module = [&](absl::string_view key) {
    if (key == "graph") return cursor.ReadObject(read_graph);
    return key == "signature" ? cursor.ReadObject(read_signature) : cursor.SkipValue();
  };
  cursor.ReadObject([&](absl::string_view key) {
    return key == "graph_module" ? cursor.ReadObject(read_module) : cursor.SkipValue();
  });
  WEFT_RETURN_IF_ERROR(cursor.status());
  return parts;
}

absl::StatusOr<std::string> RenameInputs(absl::string_view node, Rename rename) {
  return Renamer(node, rename).Run("inputs", /*is_argument=*/false);
}

absl::StatusOr<std::string> RenameOutputs(absl::string_view node, Rename rename) {
  return Renamer(node, rename).Run("outputs", /*is_argument=*/true);
}

absl::StatusOr<std::string> RenameResult(absl::string_view output, Rename rename) {
  return Renamer(output, rename).Run("", /*is_argument=*/true);
}

std::string ApplyEdits(absl::string_view text, std::vector<TextEdit> edits) {
  std::stable_sort(edits.begin(), edits.end(), [](const TextEdit& a, const TextEdit& b) {
    return a.before.data() < b.before.data();
  });
  std::string result;
  const char* at = text.data();
  for (const TextEdit& edit : edits) {
    result.append(at, edit.before.data() - at).append(edit.after);
    at = edit.before.data() + edit.before.size();
  }
  return result.append(at, text.data() + text.size() - at);
}

// --- New nodes
// -------------------------------------------------------------------------------------

NewNode& NewNode::Add(absl::string_view argument, absl::string_view kind, absl::string_view json,
                      Passed passed) {
  absl::StrAppend(&inputs_, inputs_.empty() ? "" : ", ", "{\"name\": \"", argument,
                  "\", \"arg\": {\"", kind, "\": ", json, "}, \"kind\": ", static_cast<int>(passed),
                  "}");
  return *this;
}

NewNode& NewNode::Tensor(absl::string_view argument, absl::string_view value) {
  return Add(argument, "as_tensor", TensorJson(value));
}

NewNode& NewNode::Tensors(absl::string_view argument, const std::vector<std::string>& values) {
  return Add(argument, "as_tensors", TensorListJson(values));
}

NewNode& NewNode::Number(absl::string_view argument, double value) {
  const std::string number = nlohmann::json(value).dump();
  return Add(argument, "as_float", number);
}

NewNode& NewNode::Int(absl::string_view argument, int64_t value) {
  return Add(argument, "as_int", absl::StrCat(value));
}

NewNode& NewNode::Text(absl::string_view argument, absl::string_view value) {
  return Add(argument, "as_string", absl::StrCat("\"", value, "\""));
}

NewNode& NewNode::DType(absl::string_view argument, int64_t scalar_type) {
  return Add(argument, "as_scalar_type", absl::StrCat(scalar_type), Passed::kByName);
}

NewNode& NewNode::Metadata(std::string json) {
  metadata_ = std::move(json);
  return *this;
}

std::string NewNode::Json(absl::string_view name, absl::string_view outputs) const {
  return absl::StrCat("{\"target\": \"torch.ops.", target_, "\", \"inputs\": [", inputs_,
                      "], \"outputs\": [", outputs, "], \"metadata\": ", metadata_,
                      ", \"is_hop_single_tensor_return\": null, \"name\": \"", name, "\"}");
}

std::string NewNode::Make(absl::string_view value) const {
  return Json(value, absl::StrCat("{\"as_tensor\": ", TensorJson(value), "}"));
}

std::string NewNode::MakeList(absl::string_view name,
                              const std::vector<std::string>& values) const {
  return Json(name, absl::StrCat("{\"as_tensors\": ", TensorListJson(values), "}"));
}

}  // namespace weft::pt2
