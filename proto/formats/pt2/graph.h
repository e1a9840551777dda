// An exported program of PyTorch as it stands in its archive.
#ifndef WEFT_PROTO_FORMATS_PT2_GRAPH_H_
#define WEFT_PROTO_FORMATS_PT2_GRAPH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/file.h"
#include "base/zip_archive.h"
#include "proto/program.h"

namespace weft::pt2 {

// Whether bytes are a zip archive that has a graph. O(1).
bool LooksLikeArchive(absl::string_view bytes);

// A size, or a number of elements: a product, such as 6 s31. What is no product is a symbol itself.
struct Size {
  int64_t factor = 1;
  std::vector<std::string> symbols;  // sorted

  bool is_known() const { return symbols.empty(); }
  Size& operator*=(const Size& other);
  friend bool operator==(const Size& a, const Size& b) {
    return a.factor == b.factor && a.symbols == b.symbols;
  }
  friend bool operator!=(const Size& a, const Size& b) { return !(a == b); }
};

// fp32 for half precision, in which statistics and probabilities are not computed.
inline pb::VarType::Type AtLeastFloat(pb::VarType::Type dtype) {
  const bool is_half = dtype == pb::VarType::BF16 || dtype == pb::VarType::FP16;
  return is_half ? pb::VarType::FP32 : dtype;
}

struct TensorMeta {
  pb::VarType::Type dtype = pb::VarType::FP32;
  std::vector<int64_t> dims;     // -1: a symbolic size
  std::vector<Size> sizes = {};  // the same ones; empty: not said

  Size NumElements() const;
};

// In the custom metadata of a node, JSON in a string, which torch keeps: attribute nranks of its
// op.
inline constexpr char kNumRanksKey[] = "weft_nranks";

// A call of an operator. Arguments are found by the names that its schema gives them; one that
// equals its default is not in the file. Errors name node, argument, and what was expected.
class Node {
 public:
  std::string name;
  std::string target;                // "aten.add.Tensor"
  std::vector<std::string> outputs;  // values; empty: the node does not make that output
  std::string stack;                 // of the user's script, as Python prints it; may be empty
  int nranks = 0;                    // by which the node divides, as Weft has written; 0: not said

  // "node add_3 (aten.add.Tensor)".
  std::string DebugName() const;
  // With the user's line.
  absl::Status Error(absl::string_view what) const;
  // InvalidArgument about an argument.
  absl::Status ArgumentError(absl::string_view argument, absl::string_view expected) const;

  bool Has(absl::string_view argument) const { return Find(argument) != nullptr; }
  absl::StatusOr<std::string> Tensor(absl::string_view argument) const;
  absl::StatusOr<std::vector<std::string>> Tensors() const;  // of all arguments
  absl::StatusOr<std::vector<std::string>> TensorList(absl::string_view argument) const;
  bool IsTensor(absl::string_view argument) const;
  absl::StatusOr<double> Number(absl::string_view argument,
                                absl::optional<double> otherwise = absl::nullopt) const;
  absl::StatusOr<int64_t> Int(absl::string_view argument,
                              absl::optional<int64_t> otherwise = absl::nullopt) const;
  absl::StatusOr<bool> Bool(absl::string_view argument, absl::optional<bool> otherwise) const;
  absl::StatusOr<std::string> Text(absl::string_view argument, absl::string_view otherwise) const;
  // -1: symbolic sizes.
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view argument,
                                            absl::optional<std::vector<int64_t>> otherwise) const;
  // The name of a symbolic number; empty: it is none.
  std::string Symbol(absl::string_view argument) const;

 private:
  friend class GraphReader;
  // Null: not there, or None.
  const nlohmann::json* Find(absl::string_view argument) const;
  std::map<std::string, const nlohmann::json*, std::less<>> arguments_;
};

// A parameter, a buffer or an input, and the value that has it at the start of a step.
struct Input {
  enum class Kind : uint8_t { kParameter, kBuffer, kData };
  Kind kind;
  std::string name;  // of a parameter or buffer, the key in the state_dict
  std::string value;
};

// A graph without side effects; it says which values the parameters and buffers have after a step.
class Graph {
 public:
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::map<std::string, std::string> mutations;          // by parameter or buffer: its new value
  std::vector<std::string> results;                      // values that the step returns
  absl::flat_hash_map<std::string, TensorMeta> tensors;  // by value
  absl::flat_hash_map<std::string, Size> symbols;        // by name: numbers that nodes compute
  std::map<double, std::string> schedules;               // by learning rate of an update

 private:
  friend class GraphReader;
  std::shared_ptr<const nlohmann::json> document_;
};

// The number that PyTorch has for an element type. Unimplemented: it has none that is read.
absl::StatusOr<int64_t> ScalarTypeOf(pb::VarType::Type dtype);

struct Weight {
  TensorMeta meta;
  std::string bytes;  // row-major
};

// The archive that torch.export.save writes. Pickles in it, such as the example inputs, are not
// read. Errors do not name the path. InvalidArgument: no such archive, another version (the message
// has both), JSON of another form, values that no node makes, or that are made twice, entries
// larger than the file: torch stores, and does not deflate. Unimplemented: a node that changes its
// input. ResourceExhausted: an entry that does not fit in memory.
class Archive {
 public:
  static absl::StatusOr<Archive> Open(FileBytes file);

  // O(nodes).
  absl::StatusOr<Graph> ReadGraph() const;
  // The text of the graph, and its name in the archive.
  absl::StatusOr<std::string> ReadGraphText() const;
  std::string graph_name() const;
  // What Weft has written of the run (proto/setting.h), and its name; empty: nothing. torch reads
  // such entries on demand alone.
  absl::StatusOr<std::string> ReadSetting() const;
  std::string setting_name() const;
  // The parameters and buffers that the graph begins with. InvalidArgument: one is missing, has
  // another type than the graph says, strides, or a pickle.
  absl::StatusOr<std::map<std::string, Weight>> ReadWeights(const Graph& graph) const;

 private:
  Archive(ZipArchive zip, uint64_t file_bytes) : zip_(std::move(zip)), file_bytes_(file_bytes) {}
  absl::StatusOr<std::string> Read(absl::string_view name) const;
  absl::StatusOr<nlohmann::json> ReadJson(absl::string_view name) const;
  absl::Status ReadSchedules(Graph* graph) const;

  std::string folder_;  // around all, with its slash
  ZipArchive zip_;
  uint64_t file_bytes_;
  absl::flat_hash_map<std::string, uint64_t> entries_;  // without the folder around all
};

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_GRAPH_H_
