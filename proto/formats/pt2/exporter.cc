#include "proto/formats/pt2/exporter.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "base/zip_archive.h"
#include "ops/schema/buffer_slices.h"
#include "ops/schema/communication_ops.h"
#include "ops/schema/op_attrs.h"
#include "proto/formats/pt2/importer.h"
#include "proto/formats/pt2/model_text.h"
#include "proto/formats/pt2/translator.h"
#include "proto/formats/pt2/updates.h"

namespace weft::pt2 {
namespace {

using Json = nlohmann::json;

// The name that _c10d_functional has for it.
absl::string_view ReduceOpName(Reduction reduction) {
  return reduction == Reduction::kProd ? "product" : ReductionName(reduction);
}

class Exporter {
 public:
  Exporter(const Program& program, const Graph& graph, const Makers& makers,
           const Translator& translator, const Program& imported, absl::string_view text)
      : program_(program),
        graph_(graph),
        makers_(makers),
        translator_(translator),
        imported_(imported),
        text_(text) {}

  // The text of the graph.
  absl::StatusOr<std::string> Run() {
    WEFT_RETURN_IF_ERROR(Prepare());
    OpId last_old;
    for (const OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const bool is_old = id.value() < imported_.op_id_limit();
      const absl::Status status = is_old ? VisitOld(op, last_old) : VisitNew(op);
      WEFT_RETURN_IF_ERROR(Annotate(op.DebugName(), status));
      if (!is_old) continue;
      last_old = id;
      ++num_old_;
    }
    if (num_old_ != imported_.num_ops()) {
      return absl::UnimplementedError(absl::StrCat(
          "a pass has erased ", imported_.num_ops() - num_old_,
          " ops of the step: an archive of PyTorch keeps all; write .pb, .pbtxt or .prog"));
    }
    WEFT_RETURN_IF_ERROR(WriteUntil(graph_.nodes.size()));
    WEFT_RETURN_IF_ERROR(RepeatStale());
    WEFT_RETURN_IF_ERROR(RenameResults());
    return Finish();
  }

 private:
  absl::Status Prepare() {
    if (program_.num_blocks() != 1) {
      return absl::UnimplementedError(
          "a pass has added blocks, which PyTorch's graphs do not have: write .pb or .prog");
    }
    WEFT_ASSIGN_OR_RETURN(parts_, FindParts(text_));
    if (parts_.nodes.size() != graph_.nodes.size()) {
      return absl::InternalError("the text has other nodes than the graph");
    }
    for (const auto& [name, meta] : parts_.metas) names_.insert(name);
    for (const Node& node : graph_.nodes) names_.insert(node.name);
    has_ops_.resize(graph_.nodes.size());
    for (const size_t node : translator_.node_of_op()) {
      if (node < has_ops_.size()) has_ops_[node] = true;
    }
    for (const auto& [value, var] : translator_.variables()) values_of_[var].push_back(value);
    for (const std::string& value : translator_.plain_values()) {
      const auto var = translator_.variables().find(value);
      if (var != translator_.variables().end()) plain_value_[var->second] = value;
    }
    for (const Input& input : graph_.inputs) {
      current_[input.name] = input.value;
      is_made_.insert(input.value);
    }
    return absl::OkStatus();
  }

  // --- Ops of the file ---------------------------------------------------------------------------

  absl::Status VisitOld(const Op& op, OpId last_old) {
    if (op.bytes() != imported_.op(op.id()).bytes()) {
      return absl::UnimplementedError(
          "a pass has edited the op: an archive of PyTorch keeps all nodes, and takes inserted ops "
          "alone; write .pb, .pbtxt or .prog");
    }
    if (last_old.valid() && op.id().value() < last_old.value()) {
      return absl::UnimplementedError(
          "a pass has moved the op: an archive of PyTorch keeps the order of its nodes; write .pb, "
          ".pbtxt or .prog");
    }
    const size_t node = translator_.node_of_op()[op.id().value()];
    if (node >= num_written_) {
      if (node != open_) {
        WEFT_RETURN_IF_ERROR(WriteUntil(node));
        open_ = node;
        read_by_open_.clear();
      }
      for (const Symbol arg : op.input_args()) read_by_open_.emplace(program_.name(arg));
    } else if (node < graph_.nodes.size()) {
      // The node stands before what was inserted between its ops.
      for (const Symbol arg : op.input_args()) {
        if (!replaced_since_node_.contains(program_.name(arg))) continue;
        return absl::UnimplementedError(absl::StrCat("reads ", program_.name(arg),
                                                     ", which an op has replaced that was "
                                                     "inserted among the ops of one node"));
      }
    }
    for (const Symbol arg : op.output_args()) {
      const std::string var(program_.name(arg));
      const auto value = plain_value_.find(var);
      const auto mutation = graph_.mutations.find(var);
      if (translator_.unfinished().contains(op.id().value())) {
        current_.erase(var);
      } else if (mutation != graph_.mutations.end()) {
        current_[var] = mutation->second;
        replaced_.erase(var);
      } else if (value != plain_value_.end()) {
        if (now_.contains(makers_.Origin(value->second))) {
          return absl::UnimplementedError(
              absl::StrCat("writes ", var, " again, which an inserted op has written"));
        }
        current_[var] = value->second;
      }
    }
    // Values that are computed only here, by nodes that stand before, are so from now on.
    for (const Symbol arg : op.output_args()) {
      const auto values = values_of_.find(program_.name(arg));
      if (values == values_of_.end()) continue;
      fixed_.insert(values->second.begin(), values->second.end());
    }
    return absl::OkStatus();
  }

  // Writes the node whose ops are visited, before what comes next.
  absl::Status WriteOpen() { return WriteUntil(std::min(open_ + 1, graph_.nodes.size())); }

  // Nodes of the file before number `end`.
  absl::Status WriteUntil(size_t end) {
    if (num_written_ < end) WEFT_RETURN_IF_ERROR(RepeatStale());
    for (; num_written_ < end; ++num_written_) {
      const Node& node = graph_.nodes[num_written_];
      absl::Status lost;
      WEFT_ASSIGN_OR_RETURN(
          std::string now, RenameInputs(parts_.nodes[num_written_], [&](absl::string_view value) {
            const std::string origin = makers_.Origin(value);
            if (!Makers::HandsOn(node) && lost_.contains(origin) && !now_.contains(origin)) {
              lost = node.Error(absl::StrCat("reads value ", value,
                                             ", another form of what an inserted op has replaced"));
            }
            return Now(value);
          }));
      WEFT_RETURN_IF_ERROR(lost);
      if (now != parts_.nodes[num_written_]) edits_.push_back({parts_.nodes[num_written_], now});
      is_made_.insert(node.outputs.begin(), node.outputs.end());
      if (!has_ops_[num_written_] && !Makers::HandsOn(node)) {
        without_ops_[num_written_] = std::move(now);
      }
      replaced_since_node_.clear();
    }
    return absl::OkStatus();
  }

  std::string Now(absl::string_view value) const {
    const auto found = now_.find(makers_.Origin(value));
    return found == now_.end() ? std::string(value) : found->second;
  }

  // Writes nodes once more that no op stands for, and whose inputs inserted ops have replaced.
  absl::Status RepeatStale() {
    if (!has_replaced_) return absl::OkStatus();
    has_replaced_ = false;
    for (auto& [number, text] : without_ops_) {
      const Node& node = graph_.nodes[number];
      if (absl::c_all_of(node.outputs, [&](const auto& v) { return fixed_.contains(v); })) continue;
      WEFT_ASSIGN_OR_RETURN(
          const std::string now,
          RenameInputs(parts_.nodes[number], [&](absl::string_view value) { return Now(value); }));
      if (now == text) continue;
      std::map<std::string, std::string, std::less<>> names;
      WEFT_ASSIGN_OR_RETURN(const std::string repeated,
                            RenameOutputs(now, [&](absl::string_view name) {
                              std::string& fresh = names[std::string(name)];
                              if (fresh.empty()) fresh = NewName(name);
                              return fresh;
                            }));
      text = now;
      for (const std::string& value : node.outputs) {
        const auto fresh = names.find(value);
        if (fresh == names.end()) continue;
        AddMeta(fresh->second, std::string(parts_.metas.at(value)));
        now_[makers_.Origin(value)] = fresh->second;
      }
      WEFT_RETURN_IF_ERROR(Insert(repeated));
    }
    return absl::OkStatus();
  }

  absl::Status RenameResults() {
    if (parts_.outputs.size() != parts_.output_specs.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a specification of each output, found ",
                       parts_.output_specs.size(), " of ", parts_.outputs.size()));
    }
    for (size_t i = 0; i < parts_.outputs.size(); ++i) {
      const std::string name = StateOf(parts_.output_specs[i]);
      const auto rename = [&](absl::string_view value) {
        return replaced_.contains(name) ? current_.at(name) : Now(value);
      };
      for (const absl::string_view part : {parts_.outputs[i], parts_.output_specs[i]}) {
        WEFT_ASSIGN_OR_RETURN(std::string now, RenameResult(part, rename));
        if (now != part) edits_.push_back({part, std::move(now)});
      }
    }
    return absl::OkStatus();
  }

  // The parameter or buffer of which a specification says the new value; empty: none.
  static std::string StateOf(absl::string_view spec) {
    const Json json = Json::parse(spec, nullptr, /*allow_exceptions=*/false);
    for (const auto& [kind, name] : {std::make_pair("parameter_mutation", "parameter_name"),
                                     std::make_pair("buffer_mutation", "buffer_name")}) {
      if (json.is_object() && json.contains(kind)) return json[kind].value(name, "");
    }
    return "";
  }

  // --- Inserted ops ------------------------------------------------------------------------------

  absl::Status VisitNew(const Op& op) {
    if (FindStreamSyncOp(op.type()).has_value()) return CheckKeepsNames(op);
    const OpSchema* const schema = FindOpSchema(op.type());
    if (schema != nullptr && schema->Has(Trait::kRingSetup)) return absl::OkStatus();
    if (schema != nullptr && schema->Has(Trait::kAlias)) return AddBuffer(op);
    if (const CollectiveOp* const collective = FindCollectiveOp(op)) {
      return WriteCollective(op, *collective);
    }
    if (op.type() == "scale") return WriteScale(op);
    if (op.type() == "cast") return WriteCast(op);
    return absl::UnimplementedError(
        "a pass has inserted this op, and it has no form in an archive of PyTorch that Weft "
        "writes: "
        "write .pb, .pbtxt or .prog");
  }

  static absl::Status CheckKeepsNames(const Op& op) {
    const auto in = op.input_args(), out = op.output_args();
    const bool keeps = std::equal(in.begin(), in.end(), out.begin(), out.end());
    return keeps ? absl::OkStatus()
                 : absl::UnimplementedError("expected an op that keeps the names of variables");
  }

  absl::Status AddBuffer(const Op& op) {
    const MadeBuffer made = MadeBufferOf(op);
    if (!made.name.valid() || made.parts.empty() || made.constant.has_value() ||
        (made.copies && !std::equal(made.parts.begin(), made.parts.end(), made.sources.begin(),
                                    made.sources.end()))) {
      return absl::UnimplementedError(
          "expected a buffer of what its parts have: write .pb, .pbtxt or .prog");
    }
    std::vector<std::string>& parts = buffers_[std::string(program_.name(made.name))];
    for (const Symbol part : made.parts) parts.emplace_back(program_.name(part));
    return absl::OkStatus();
  }

  // The variables that an argument stands for.
  std::vector<std::string> PartsOf(Symbol arg) const {
    const std::string var(program_.name(arg));
    const auto buffer = buffers_.find(var);
    return buffer == buffers_.end() ? std::vector<std::string>{var} : buffer->second;
  }

  // Inputs and outputs of an op on one variable, or one buffer, part by part.
  struct Pair {
    std::string value;  // that is read
    std::string out;    // a variable
  };
  absl::StatusOr<std::vector<Pair>> PairsOf(const Op& op) {
    if (op.input_args().size() != 1 || op.output_args().size() != 1) {
      return absl::UnimplementedError("expected one input and one output: write .pb or .prog");
    }
    const std::vector<std::string> in = PartsOf(op.input_args()[0]),
                                   out = PartsOf(op.output_args()[0]);
    if (in.size() != out.size()) {
      return absl::UnimplementedError("expected an output with as many parts as the input");
    }
    std::vector<Pair> pairs;
    for (size_t i = 0; i < in.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(std::string value, ValueOf(in[i]));
      pairs.push_back({std::move(value), out[i]});
    }
    return pairs;
  }

  absl::StatusOr<std::string> ValueOf(const std::string& var) {
    const auto found = current_.find(var);
    if (found == current_.end()) {
      return absl::UnimplementedError(
          absl::StrCat("reads ", var,
                       ": expected an input of the step, its loss, a gradient, or what an inserted "
                       "op has written; write .pb, .pbtxt or .prog"));
    }
    std::string value = Now(found->second);
    if (!is_made_.contains(value)) WEFT_RETURN_IF_ERROR(WriteOpen());
    if (is_made_.contains(value)) return value;
    return absl::UnimplementedError(absl::StrCat(
        "reads ", var, " before the node that makes its value; write .pb, .pbtxt or .prog"));
  }

  // `var` has a new value.
  absl::Status Replace(const std::string& var, const std::string& value) {
    if (read_by_open_.contains(var)) WEFT_RETURN_IF_ERROR(WriteOpen());
    current_[var] = value;
    is_made_.insert(value);
    replaced_since_node_.insert(var);
    const auto plain = plain_value_.find(var);
    if (plain == plain_value_.end()) return absl::OkStatus();
    const bool is_input =
        absl::c_any_of(graph_.inputs, [&](const Input& input) { return input.name == var; });
    if (is_input && graph_.mutations.count(var) == 0) {
      return absl::UnimplementedError(absl::StrCat(
          "writes ", var, ", which the step of the file leaves as it is: write .pb or .prog"));
    }
    if (is_input) replaced_.insert(var);
    if (num_written_ == graph_.nodes.size()) {
      if (is_input || num_old_ == imported_.num_ops()) return absl::OkStatus();
      return absl::UnimplementedError(
          absl::StrCat("writes ", var, " between updates: write .pb, .pbtxt or .prog"));
    }
    has_replaced_ = true;
    now_[makers_.Origin(plain->second)] = value;
    for (const std::string& other : values_of_[var]) {
      if (other != plain->second) lost_.insert(other);
    }
    return absl::OkStatus();
  }

  absl::Status Insert(const std::string& node) {
    if (num_written_ == 0 && num_old_ > 0) WEFT_RETURN_IF_ERROR(WriteOpen());
    if (num_written_ == 0) {
      return absl::UnimplementedError(
          "expected an op after one of the step, found none: write .pb or .prog");
    }
    absl::StrAppend(&inserted_[num_written_ - 1], ", ", node);
    return absl::OkStatus();
  }

  absl::Status WriteCollective(const Op& op, const CollectiveOp& collective) {
    const bool is_whole_group =
        op.IntsAttr(kGroupRanksAttr).value_or(std::vector<int64_t>()).empty();
    if (collective.kind != CollectiveKind::kAllReduce || !is_whole_group) {
      return absl::UnimplementedError(
          "expected an all-reduce over all ranks: others have no form in an archive of PyTorch "
          "that "
          "Weft writes; write .pb, .pbtxt or .prog");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, PairsOf(op));
    const std::string reduce_op(ReduceOpName(collective.reduction));
    const std::string group = absl::StrCat(op.IntAttr("ring_id").value_or(0));
    std::vector<std::string> reduced;
    if (pairs.size() == 1) {
      reduced = {NewValue("all_reduce", pairs[0].value)};
      WEFT_RETURN_IF_ERROR(Insert(NewNode("_c10d_functional.all_reduce.default")
                                      .Tensor("input", pairs[0].value)
                                      .Text("reduce_op", reduce_op)
                                      .Text("group_name", group)
                                      .Make(reduced[0])));
    } else {
      std::vector<std::string> values;
      const std::string name = NewName("all_reduce_coalesced");
      for (const Pair& pair : pairs) {
        values.push_back(pair.value);
        reduced.push_back(NewValue("all_reduce", pair.value));
      }
      WEFT_RETURN_IF_ERROR(Insert(NewNode("_c10d_functional.all_reduce_coalesced.default")
                                      .Tensors("inputs", values)
                                      .Text("reduce_op", reduce_op)
                                      .Text("group_name", group)
                                      .MakeList(name, reduced)));
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      const std::string value = NewValue("wait_tensor", pairs[i].value);
      WEFT_RETURN_IF_ERROR(Insert(NewNode("_c10d_functional.wait_tensor.default")
                                      .Tensor("tensor", reduced[i])
                                      .Make(value)));
      WEFT_RETURN_IF_ERROR(Replace(pairs[i].out, value));
    }
    return absl::OkStatus();
  }

  absl::Status WriteScale(const Op& op) {
    if (op.FloatAttr("bias").value_or(0) != 0) {
      return absl::UnimplementedError("expected no bias: write .pb, .pbtxt or .prog");
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, PairsOf(op));
    Json metadata = Json::object();
    if (op.HasAttr(kNumRanksAttr)) {
      metadata["custom"] = Json{{kNumRanksKey, op.IntAttr(kNumRanksAttr).value_or(0)}}.dump();
    }
    for (const Pair& pair : pairs) {
      const std::string value = NewValue("mul", pair.value);
      WEFT_RETURN_IF_ERROR(Insert(NewNode("aten.mul.Scalar")
                                      .Tensor("self", pair.value)
                                      .Number("other", op.FloatAttr("scale").value_or(1))
                                      .Metadata(metadata.dump())
                                      .Make(value)));
      WEFT_RETURN_IF_ERROR(Replace(pair.out, value));
    }
    return absl::OkStatus();
  }

  absl::Status WriteCast(const Op& op) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, PairsOf(op));
    const auto dtype = static_cast<pb::VarType::Type>(op.IntAttr("out_dtype").value_or(-1));
    WEFT_ASSIGN_OR_RETURN(const int64_t scalar_type, ScalarTypeOf(dtype));
    for (const Pair& pair : pairs) {
      const std::string value = NewValue("_to_copy", pair.value, scalar_type);
      WEFT_RETURN_IF_ERROR(Insert(NewNode("aten._to_copy.default")
                                      .Tensor("self", pair.value)
                                      .DType("dtype", scalar_type)
                                      .Make(value)));
      WEFT_RETURN_IF_ERROR(Replace(pair.out, value));
    }
    return absl::OkStatus();
  }

  // --- Names and types ---------------------------------------------------------------------------

  std::string NewName(absl::string_view base) {
    std::string name(base);
    for (int i = 1; !names_.insert(name).second; ++i) name = absl::StrCat(base, "_", i);
    return name;
  }

  void AddMeta(const std::string& value, std::string meta) {
    absl::StrAppend(&new_metas_, parts_.metas.empty() ? "" : ", ", "\"", value, "\": ", meta);
    metas_[value] = std::move(meta);
  }

  // A new value, of the type of `value`, or another element type; it lies row-major.
  std::string NewValue(absl::string_view base, const std::string& value,
                       absl::optional<int64_t> scalar_type = absl::nullopt) {
    std::string name = NewName(base);
    const auto added = metas_.find(value);
    Json meta = Json::parse(added != metas_.end() ? absl::string_view(added->second)
                                                  : parts_.metas.at(value));
    Json strides = Json::array();
    int64_t stride = 1;
    for (size_t i = meta["sizes"].size(); i-- > 0;) {
      strides.insert(strides.begin(), Json{{"as_int", stride}});
      stride *= std::max<int64_t>(meta["sizes"][i].value("as_int", 1), 1);
    }
    meta["strides"] = std::move(strides);
    meta["storage_offset"] = Json{{"as_int", 0}};
    meta["requires_grad"] = false;
    if (scalar_type.has_value()) meta["dtype"] = *scalar_type;
    AddMeta(name, meta.dump());
    return name;
  }

  std::string Finish() {
    for (const auto& [node, text] : inserted_) {
      const absl::string_view before = parts_.nodes[node];
      edits_.push_back({before.substr(before.size()), text});
    }
    if (parts_.end_of_metas != nullptr) {
      edits_.push_back({absl::string_view(parts_.end_of_metas, 0), new_metas_});
    }
    return ApplyEdits(text_, std::move(edits_));
  }

  const Program& program_;
  const Graph& graph_;
  const Makers& makers_;
  const Translator& translator_;
  const Program& imported_;
  const absl::string_view text_;
  ModelText parts_;

  absl::flat_hash_set<std::string> names_;                                // of nodes and values
  std::vector<bool> has_ops_;                                             // by node
  absl::flat_hash_map<std::string, std::vector<std::string>> values_of_;  // by variable
  absl::flat_hash_map<std::string, std::string> plain_value_;             // by variable
  absl::flat_hash_map<std::string, std::string> current_;                 // by variable: its value
  absl::flat_hash_map<std::string, std::string> now_;     // by value that was replaced
  absl::flat_hash_set<std::string> lost_;                 // other forms of replaced values
  absl::flat_hash_set<std::string> is_made_, fixed_;      // values
  absl::flat_hash_set<std::string> replaced_;             // parameters and buffers
  absl::flat_hash_set<std::string> replaced_since_node_;  // variables
  bool has_replaced_ = false;                             // since RepeatStale
  // Nodes that no op stands for: the last text of each that is written.
  std::map<size_t, std::string> without_ops_;
  std::map<std::string, std::vector<std::string>> buffers_;
  size_t num_written_ = 0;  // nodes
  // The node whose ops are visited, and what these read so far. It is written after them, if no op
  // is inserted among them that must come after it.
  size_t open_ = 0;
  absl::flat_hash_set<std::string> read_by_open_;
  size_t num_old_ = 0;                      // ops
  std::map<size_t, std::string> inserted_;  // by the node before
  std::string new_metas_;
  absl::flat_hash_map<std::string, std::string> metas_;  // of new values
  std::vector<TextEdit> edits_;
};

absl::StatusOr<std::string> ExportGraph(const Program& program, const Archive& archive) {
  WEFT_ASSIGN_OR_RETURN(const Graph graph, archive.ReadGraph());
  WEFT_ASSIGN_OR_RETURN(const std::string text, archive.ReadGraphText());
  const Makers makers(graph);
  WEFT_ASSIGN_OR_RETURN(const Updates updates, FindUpdates(graph, makers));
  Translator translator(graph, makers, updates);
  WEFT_ASSIGN_OR_RETURN(const pb::ProgramDesc desc, translator.Run());
  WEFT_ASSIGN_OR_RETURN(const Program imported, Program::FromProto(desc));
  return Exporter(program, graph, makers, translator, imported, text).Run();
}

}  // namespace

absl::StatusOr<std::string> ExportProgram(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr) {
    return absl::InvalidArgumentError(
        "expected a program that was read from a .pt2 file of PyTorch; write .pb, .pbtxt or .prog");
  }
  WEFT_ASSIGN_OR_RETURN(const Archive archive, Archive::Open(import->file));
  WEFT_ASSIGN_OR_RETURN(const std::string setting, archive.ReadSetting());
  std::map<std::string, std::string> entries;
  if (program.setting() != setting) entries[archive.setting_name()] = program.setting();
  if (program.revision() != 0) {
    WEFT_ASSIGN_OR_RETURN(entries[archive.graph_name()], ExportGraph(program, archive));
  }
  if (entries.empty()) return std::string(import->file.bytes);
  return WithEntries(import->file.bytes, entries);
}

}  // namespace weft::pt2
