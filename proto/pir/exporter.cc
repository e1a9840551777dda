#include "proto/pir/exporter.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/annotate.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "proto/pir/attributes.h"
#include "proto/pir/document.h"
#include "proto/pir/document_writer.h"
#include "proto/pir/importer.h"
#include "proto/pir/new_op.h"

namespace weft::pir {
namespace {

class Exporter {
 public:
  Exporter(const Program& program, const Import& import, const Document& document)
      : program_(program),
        import_(import),
        document_(document),
        current_(program.symbols().size()),
        is_written_(document_.ops().size(), false),
        new_ops_(document_.max_id()),
        writer_(document_) {}

  absl::StatusOr<SerializedProgram> Run() {
    WEFT_RETURN_IF_ERROR(CheckBlocks());
    PlaceCompanions();
    PlaceSinks();
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      const absl::Status status = Visit(op);
      if (!status.ok()) return Annotate(op.DebugName(), status);
    }
    WEFT_RETURN_IF_ERROR(WriteRange(companions_end_, document_.ops().size()));
    return writer_.Finish();
  }

 private:
  struct Current {
    int64_t id = 0;  // 0: nothing yet
    absl::string_view type;
  };
  // Tensors in one buffer.
  struct Buffer {
    std::vector<std::string> parts;
    int64_t id = 0;  // of the concatenation, while the parts are older
    std::string type;
  };

  // Blocks of the file are written as they are.
  absl::Status CheckBlocks() const {
    if (program_.num_blocks() > static_cast<int>(document_.blocks().size())) {
      return absl::UnimplementedError(
          "the passes made blocks of ops that run on some steps only; PIR files are written "
          "without "
          "new control flow");
    }
    for (int block = 1; block < program_.num_blocks(); ++block) {
      for (OpId id : program_.block(block).ops()) {
        if (IsUnchanged(program_.op(id))) continue;
        return absl::UnimplementedError(
            absl::StrCat(program_.op(id).DebugName(),
                         ": a pass has written this op in a block; PIR files are written with ops "
                         "inserted in the root block only"));
      }
    }
    return absl::OkStatus();
  }

  bool IsUnchanged(const Op& op) const {
    const size_t id = op.id().value();
    return id < import_.op_of_id.size() && op.bytes().data() == import_.begin_of_id[id];
  }

  // --- Order -------------------------------------------------------------------------------------

  // What names the values of variables at the end of the startup program comes after the last op
  // that writes these.
  void PlaceSinks() {
    absl::flat_hash_map<Symbol, uint32_t> last_writer;
    for (OpId id : program_.block(0).ops()) {
      const Op op = program_.op(id);
      for (Symbol arg : op.output_args()) last_writer[arg] = id.value();
      // One that copies: what it reads has another name already.
      if (id.value() >= import_.op_of_id.size()) continue;
      const uint32_t i = import_.op_of_id[id.value()];
      if (IsSink(document_.op(i).name) && IsUnchanged(op)) named_by_sink_[i] = op.output_args()[0];
    }
    for (uint32_t i = 0; i < document_.ops().size(); ++i) {
      if (document_.op(i).block != 0 || !IsSink(document_.op(i).name)) continue;
      const ValueIndex value = document_.operands(document_.op(i))[0].value;
      const auto copy = named_by_sink_.find(i);
      const auto found = last_writer.find(
          copy != named_by_sink_.end() ? copy->second : import_.variable_of_value[value]);
      if (found == last_writer.end() || found->second < import_.op_of_id.size()) continue;
      sinks_behind_[found->second].push_back(i);
      is_deferred_.emplace(i, true);
    }
  }

  // An op of the file that is none of the program comes with the next one that is.
  void PlaceCompanions() {
    std::vector<bool> is_op(document_.ops().size(), false);
    for (OpId id : program_.block(0).ops()) {
      if (id.value() < import_.op_of_id.size()) is_op[import_.op_of_id[id.value()]] = true;
    }
    is_op_of_file_.assign(document_.ops().size(), false);
    for (const uint32_t i : import_.op_of_id) is_op_of_file_[i] = true;
    companions_of_.assign(is_op.size(), 0);
    uint32_t first = 0;
    for (uint32_t i = 0; i < is_op.size(); ++i) {
      if (!is_op[i]) continue;
      companions_of_[i] = first;
      first = i + 1;
    }
    companions_end_ = first;
  }

  absl::Status WriteRange(uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      if (document_.op(i).block != 0 || is_op_of_file_[i] || is_written_[i] ||
          is_deferred_.contains(i)) {
        continue;
      }
      WEFT_RETURN_IF_ERROR(WriteOld(i));
    }
    return absl::OkStatus();
  }

  absl::Status Visit(const Op& op) {
    const size_t id = op.id().value();
    if (id >= import_.op_of_id.size()) {
      WEFT_RETURN_IF_ERROR(WriteNew(op));
    } else if (!IsUnchanged(op)) {
      return absl::UnimplementedError(
          "a pass has changed this op; PIR files are written with inserted ops only");
    } else {
      const uint32_t i = import_.op_of_id[id];
      if (is_written_[i]) return absl::OkStatus();  // a part of a 1.if
      WEFT_RETURN_IF_ERROR(WriteRange(companions_of_[i], i));
      for (Symbol arg : op.args()) WEFT_RETURN_IF_ERROR(SplitBufferOf(arg));
      if (named_by_sink_.contains(i)) Copy(op.input_args()[0], op.output_args()[0]);
      if (!is_deferred_.contains(i)) WEFT_RETURN_IF_ERROR(WriteOld(i));
    }
    const auto sinks = sinks_behind_.find(static_cast<uint32_t>(id));
    if (sinks == sinks_behind_.end()) return absl::OkStatus();
    for (const uint32_t i : sinks->second) WEFT_RETURN_IF_ERROR(WriteOld(i));
    return absl::OkStatus();
  }

  // --- Ops of the file ---------------------------------------------------------------------------

  Current& CurrentOf(Symbol var) {
    if (var.value() >= current_.size()) current_.resize(var.value() + 1);
    return current_[var.value()];
  }

  void Copy(Symbol from, Symbol to) {
    const Current value = CurrentOf(from);
    CurrentOf(to) = value;
  }

  // The id of what an operand of the file is now.
  absl::StatusOr<int64_t> IdNow(ValueIndex value) {
    const Value& old = document_.value(value);
    const Symbol var = import_.variable_of_value[value];
    if (var.valid() && CurrentOf(var).id != 0) return CurrentOf(var).id;
    const absl::string_view made_by = old.op == kNoOp ? "" : document_.op(old.op).name;
    if (made_by != kCombineOp) return old.id;
    // A list of what its elements are now.
    std::vector<int64_t> ids;
    for (const Operand& element : document_.operands(document_.op(old.op))) {
      WEFT_ASSIGN_OR_RETURN(ids.emplace_back(),
                            element.value == kNoValue ? 0 : IdNow(element.value));
    }
    auto& [list_ids, list] = lists_[value];
    if (list == 0) {
      list_ids = ids;
      list = old.id;
    } else if (list_ids != ids) {
      WEFT_ASSIGN_OR_RETURN(NewOp op, new_ops_.Make(kCombineOp, ids, {}, {std::string(old.type)}));
      WEFT_RETURN_IF_ERROR(writer_.AddNew(op.json));
      list_ids = ids;
      list = op.results[0];
    }
    return list;
  }

  // Operands with values, those of ops in its blocks too, as they stand in the file.
  std::vector<Operand> OperandsOf(uint32_t i) const {
    std::vector<Operand> all;
    const uint32_t end = document_.op(i).num_blocks == 0 ? i + 1 : document_.EndOf(i);
    for (uint32_t k = i; k < end; ++k) {
      for (const Operand& operand : document_.operands(document_.op(k))) {
        if (operand.value != kNoValue) all.push_back(operand);
      }
    }
    absl::c_sort(all, [](const Operand& a, const Operand& b) { return a.id_text < b.id_text; });
    return all;
  }

  absl::Status WriteOld(uint32_t i) {
    const DocumentOp& op = document_.op(i);
    is_written_[i] = true;
    std::vector<DocumentWriter::Edit> edits;
    const std::vector<Operand> all = OperandsOf(i);
    for (const Operand& operand : all) {
      const auto copy = named_by_sink_.find(i);
      const bool is_copy = copy != named_by_sink_.end();
      if (IsSink(op.name) || op.num_blocks > 0) {
        const Symbol var = is_copy ? copy->second : import_.variable_of_value[operand.value];
        if (var.valid()) WEFT_RETURN_IF_ERROR(SplitBufferOf(var));
      }
      int64_t id;
      if (is_copy) {
        id = CurrentOf(copy->second).id;
      } else {
        WEFT_ASSIGN_OR_RETURN(id, IdNow(operand.value));
      }
      if (id != document_.value(operand.value).id) edits.push_back({&operand, id});
    }
    WEFT_RETURN_IF_ERROR(writer_.AddOld(i, edits));
    if (op.name == kCombineOp && op.num_results == 1) {
      auto& [ids, list] = lists_[op.first_result];
      ids.clear();
      for (const Operand& element : document_.operands(op)) {
        WEFT_ASSIGN_OR_RETURN(ids.emplace_back(),
                              element.value == kNoValue ? 0 : IdNow(element.value));
      }
      list = document_.value(op.first_result).id;
    }
    for (uint32_t r = 0; r < op.num_results; ++r) {
      const Value& result = document_.results(op)[r];
      const Symbol var = import_.variable_of_value[op.first_result + r];
      if (!var.valid()) continue;
      CurrentOf(var) = {result.id, result.type};
      if (op.name == "p" || op.name == "1.data") is_bound_.insert(var);
    }
    return WriteSplits(i);
  }

  // What takes the lists apart that an op has made comes at once: inserted ops read the elements.
  absl::Status WriteSplits(uint32_t i) {
    if (document_.op(i).name == kCombineOp) return absl::OkStatus();
    for (uint32_t next = document_.EndOf(i); next < document_.ops().size(); ++next) {
      const DocumentOp& op = document_.op(next);
      if (op.block != 0 || op.name != kSplitOp || is_written_[next]) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(WriteOld(next));
    }
    return absl::OkStatus();
  }

  // --- New ops -----------------------------------------------------------------------------------

  absl::Status WriteNew(const Op& op) {
    switch (KindOf(op.type())) {
      case NewOpKind::kNone:
        return absl::UnimplementedError(
            "a pass has inserted this op, and it has no form in PIR that Weft writes");
      case NewOpKind::kLeftOut:
        return Rename(op);
      case NewOpKind::kBuffer:
        return AddBuffer(op);
      case NewOpKind::kWritten:
        break;
    }
    WEFT_RETURN_IF_ERROR(CheckOutputs(op));
    const auto fused = buffers_.find(op.output_args()[0]);
    if (fused != buffers_.end() && HasBoundPart(fused->second)) {
      return WriteForParts(op, fused->second);
    }
    std::vector<NewOpInput> inputs;
    for (Symbol arg : op.input_args()) {
      WEFT_RETURN_IF_ERROR(ConcatenateBuffer(arg));
      const auto buffer = buffers_.find(arg);
      if (buffer == buffers_.end()) WEFT_RETURN_IF_ERROR(SplitBufferOf(arg));
      const Current now = CurrentOf(arg);
      if (now.id == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("reads ", program_.name(arg), ", which nothing has written"));
      }
      inputs.push_back({arg, now.id, std::string(now.type)});
    }
    // What the op writes takes the place of the part in the buffer.
    for (Symbol out : op.output_args()) WEFT_RETURN_IF_ERROR(SplitBufferOf(out));
    const bool in_place = is_bound_.contains(op.output_args()[0]);
    WEFT_ASSIGN_OR_RETURN(const std::vector<NewOp> ops,
                          new_ops_.Translate(op, inputs, StreamOf(op), in_place));
    for (const NewOp& written : ops) WEFT_RETURN_IF_ERROR(writer_.AddNew(written.json));
    for (size_t k = 0; k < op.output_args().size(); ++k) {
      SetCurrent(op.output_args()[k], ops.back().results[k], ops.back().types[k]);
    }
    const auto buffer = buffers_.find(op.output_args()[0]);
    if (buffer != buffers_.end()) buffer->second.id = ops.back().results[0];
    return absl::OkStatus();
  }

  bool HasBoundPart(const Buffer& buffer) const {
    return absl::c_any_of(buffer.parts, [&](const std::string& part) {
      return is_bound_.contains(program_.FindSymbol(part));
    });
  }

  // An op on a buffer of parameters, as one on each: copies of them would not outlive the step.
  absl::Status WriteForParts(const Op& op, const Buffer& buffer) {
    if (op.input_args().size() != 1 || op.output_args().size() != 1 ||
        op.input_args()[0] != op.output_args()[0]) {
      return absl::UnimplementedError(absl::StrCat(
          "writes ", program_.name(op.output_args()[0]),
          ", a buffer of what outlives the step: expected an op in place, on the buffer alone"));
    }
    for (const std::string& name : buffer.parts) {
      const Symbol part = program_.FindSymbol(name);
      const Current now = CurrentOf(part);
      if (now.id == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("reads ", name, ", which nothing has written"));
      }
      const NewOpInput input = {op.output_args()[0], now.id, std::string(now.type)};
      WEFT_ASSIGN_OR_RETURN(const std::vector<NewOp> ops,
                            new_ops_.Translate(op, {input}, StreamOf(op), /*in_place=*/true));
      for (const NewOp& written : ops) WEFT_RETURN_IF_ERROR(writer_.AddNew(written.json));
      SetCurrent(part, ops.back().results[0], ops.back().types[0]);
    }
    return absl::OkStatus();
  }

  // A collective that waits for computation, and that computation waits for, has a stream of its
  // own: that of its ring.
  std::string StreamOf(const Op& op) const {
    if (op.type() != "all_reduce" && op.type() != "all_gather") return "";
    const int64_t ring = op.IntAttr("ring_id").value_or(0);
    return waiting_rings_.contains(ring) ? absl::StrCat("weft_ring_", ring) : "";
  }

  absl::Status CheckOutputs(const Op& op) const {
    if (op.output_args().empty()) {
      return absl::UnimplementedError("expected outputs of an inserted op, found none");
    }
    for (Symbol out : op.output_args()) {
      const VarId var = program_.block(0).FindVar(out);
      const bool is_new = out.value() >= current_.size() || current_[out.value()].id == 0;
      if (!var.valid() || !program_.var(var).persistable() || !is_new) continue;
      return absl::UnimplementedError(absl::StrCat(
          "makes the persistable variable ", program_.name(out), ", which the file does not have"));
    }
    return absl::OkStatus();
  }

  void SetCurrent(Symbol var, int64_t id, absl::string_view type) {
    types_.push_back(std::make_unique<std::string>(type));
    CurrentOf(var) = {id, *types_.back()};
  }

  // Outputs of an op that is left out are its inputs.
  absl::Status Rename(const Op& op) {
    if (op.type() == "c_wait_compute") waiting_rings_.insert(op.IntAttr("ring_id").value_or(0));
    const auto in = op.input_args(), out = op.output_args();
    for (size_t k = 0; k < std::min(in.size(), out.size()); ++k) {
      if (in[k] == out[k]) continue;
      WEFT_RETURN_IF_ERROR(SplitBufferOf(in[k]));
      WEFT_RETURN_IF_ERROR(SplitBufferOf(out[k]));
      Copy(in[k], out[k]);
    }
    return absl::OkStatus();
  }

  absl::Status AddBuffer(const Op& op) {
    const auto fused = op.Output("FusedOutput"), parts = op.Output("Output");
    if (fused.size() != 1 || parts.empty()) {
      return absl::InvalidArgumentError("expected slots FusedOutput and Output");
    }
    Buffer& buffer = buffers_[fused[0]];
    for (Symbol part : parts) {
      buffer.parts.emplace_back(program_.name(part));
      buffer_of_part_[part] = fused[0];
    }
    return absl::OkStatus();
  }

  // The value of a buffer that an op is about to read: the parts as they are now.
  absl::Status ConcatenateBuffer(Symbol var) {
    const auto found = buffers_.find(var);
    if (found == buffers_.end() || found->second.id != 0) return absl::OkStatus();
    std::vector<NewOpInput> parts;
    for (const std::string& name : found->second.parts) {
      const Symbol part = program_.FindSymbol(name);
      const Current now = CurrentOf(part);
      if (now.id == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("reads the buffer of ", name, ", which nothing has written"));
      }
      parts.push_back({part, now.id, std::string(now.type)});
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<NewOp> ops, new_ops_.Concatenate(parts));
    for (const NewOp& op : ops) WEFT_RETURN_IF_ERROR(writer_.AddNew(op.json));
    found->second.id = ops.back().results[0];
    SetCurrent(var, ops.back().results[0], ops.back().types[0]);
    return absl::OkStatus();
  }

  // Takes a buffer apart before an op reads one of its parts.
  absl::Status SplitBufferOf(Symbol part) {
    const auto owner = buffer_of_part_.find(part);
    if (owner == buffer_of_part_.end()) return absl::OkStatus();
    Buffer& buffer = buffers_.at(owner->second);
    if (buffer.id == 0) return absl::OkStatus();
    std::vector<NewOpInput> parts;
    for (const std::string& name : buffer.parts) {
      const Symbol symbol = program_.FindSymbol(name);
      parts.push_back({symbol, 0, std::string(CurrentOf(symbol).type)});
    }
    std::vector<int64_t> ids;
    WEFT_ASSIGN_OR_RETURN(const std::vector<NewOp> ops, new_ops_.Split(buffer.id, parts, &ids));
    for (const NewOp& op : ops) WEFT_RETURN_IF_ERROR(writer_.AddNew(op.json));
    buffer.id = 0;
    for (size_t k = 0; k < parts.size(); ++k) CurrentOf(parts[k].var).id = ids[k];
    return absl::OkStatus();
  }

  const Program& program_;
  const Import& import_;
  const Document& document_;
  std::vector<Current> current_;                     // by symbol
  std::vector<std::unique_ptr<std::string>> types_;  // of new values
  std::vector<bool> is_written_;                     // by op of the file
  std::vector<bool> is_op_of_file_;      // by op of the file: it is an op of the imported program
  std::vector<uint32_t> companions_of_;  // by op of the file: the first one that comes with it
  uint32_t companions_end_ = 0;
  // By op of the file: the variable that it names, a copy of that of its operand.
  absl::flat_hash_map<uint32_t, Symbol> named_by_sink_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> sinks_behind_;  // by OpId
  absl::flat_hash_map<uint32_t, bool> is_deferred_;                    // those
  absl::flat_hash_map<ValueIndex, std::pair<std::vector<int64_t>, int64_t>> lists_;
  absl::flat_hash_map<Symbol, Buffer> buffers_;
  absl::flat_hash_map<Symbol, Symbol> buffer_of_part_;
  absl::flat_hash_set<int64_t> waiting_rings_;
  // Parameters, feeds and state, which outlive the step: what writes one must write in place, as
  // Paddle keeps the variable and not the value.
  absl::flat_hash_set<Symbol> is_bound_;
  NewOps new_ops_;
  DocumentWriter writer_;
};

}  // namespace

absl::StatusOr<SerializedProgram> ExportToPieces(const Program& program) {
  const Import* const import = ImportOf(program);
  if (import == nullptr) {
    return absl::InvalidArgumentError(
        "expected a program that was read from a .json file of Paddle 3; write .pb or .prog");
  }
  if (program.revision() == 0) {
    SerializedProgram file;
    file.pieces = {import->bytes};
    file.size = import->bytes.size();
    return file;
  }
  constexpr size_t kLarge = 4 << 20;
  if (import->bytes.size() >= kLarge) ReturnFreeMemory();
  WEFT_ASSIGN_OR_RETURN(const auto document, Document::Parse(import->owner, import->bytes));
  if (document->blocks()[0].ops.empty()) {
    return absl::UnimplementedError("expected a file with at least one op");
  }
  return Exporter(program, *import, *document).Run();
}

absl::StatusOr<std::string> ExportProgram(const Program& program) {
  WEFT_ASSIGN_OR_RETURN(const SerializedProgram file, ExportToPieces(program));
  return absl::StrJoin(file.pieces, "");
}

}  // namespace weft::pir
