// A rewritten program as a PIR file (proto/formats/pir/exporter.h), op by op.
#ifndef WEFT_PROTO_FORMATS_PIR_EXPORT_OPS_H_
#define WEFT_PROTO_FORMATS_PIR_EXPORT_OPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/document_writer.h"
#include "proto/formats/pir/importer.h"
#include "proto/formats/pir/new_op.h"
#include "proto/formats/pir/op_table.h"
#include "proto/program.h"

namespace weft::pir {

// Ops of the file are in export_old_ops.cc, new ops in export_new_ops.cc, new blocks and new state
// in export_branches.cc.
class Exporter {
 public:
  // The arguments must outlive it.
  Exporter(const Program& program, const Import& import, const Document& document)
      : program_(program),
        import_(import),
        document_(document),
        current_(program.symbols().size()),
        is_replaced_(program.symbols().size(), false),
        is_written_(document_.ops().size(), false),
        new_ops_(document_.max_id()),
        num_blocks_(document_.blocks().size()),
        writer_(document_) {}

  absl::StatusOr<SerializedProgram> Run();

 private:
  struct Current {
    int64_t id = 0;  // 0: nothing yet
    absl::string_view type;
  };
  // What an op reads instead of an operand of the file.
  struct Renamed {
    std::vector<Symbol> vars;  // one, or the elements of a list
    bool is_list = false;
  };
  // Tensors in one buffer.
  struct Buffer {
    std::vector<Symbol> parts;
    int64_t id = 0;  // of the concatenation, while the parts are older
  };

  // Blocks of the file are written as they are.
  absl::Status CheckBlocks() const;
  bool IsUnchanged(const Op& op) const;
  // Of an op of the file that reads or writes other variables than before, or computes the same
  // across ranks, and is the same otherwise: notes that in renamed_, renamed_results_ and retyped_.
  // Unimplemented for other changes.
  absl::Status TakeChanges(const Op& op);
  // Of a dense tensor, as JSON; Unimplemented for another variable.
  absl::StatusOr<std::string> DeclaredType(Symbol var, int block = 0) const;
  // That of the variable that holds a result of the file; empty: the result has it.
  absl::StatusOr<std::string> NewTypeOf(const Value& result, Symbol var) const;

  // --- Order -------------------------------------------------------------------------------------

  // What names the values of variables at the end of the startup program comes after the last op
  // that writes these.
  void PlaceSinks();
  // An op of the file that is none of the program comes with the next one that is.
  void PlaceCompanions();
  // Declarations and names of variables that no longer outlive the step, and what only erased ops
  // need.
  void FindDropped();
  bool OutlivesStep(Symbol var) const;
  absl::Status WriteRange(uint32_t begin, uint32_t end);
  absl::Status Visit(const Op& op);
  // Inserted ops come before or after all parts of an op of the file.
  void NoteInserted(const Op& op);
  absl::Status CheckPart(const Op& op) const;

  // --- Ops of the file ---------------------------------------------------------------------------

  Current& CurrentOf(Symbol var);
  // Of a variable that a new op writes.
  void Replace(Symbol var, const Current& with);
  void Copy(Symbol from, Symbol to);
  // The id of what an operand of the file is now.
  absl::StatusOr<int64_t> IdNow(ValueIndex value);
  absl::StatusOr<int64_t> IdNow(const Renamed& operand);
  // Operands with values, those of ops in its blocks too, as they stand in the file.
  std::vector<Operand> OperandsOf(uint32_t i) const;
  // The edits by which results have the types of the variables that hold them, and outlive the step
  // if these do.
  absl::Status EditResults(const DocumentOp& op, std::vector<DocumentWriter::Edit>* edits) const;
  std::vector<std::string> TypesOf(const std::vector<Symbol>& vars) const;
  // Takes a list apart that op `i` of the file has made, in the place of the 0.split of the file.
  absl::Status SplitRenamedList(uint32_t i, ValueIndex value, const std::vector<Symbol>& vars);
  // What holds a result of an op of the file.
  Symbol VariableOf(ValueIndex result) const;
  // With what takes the lists apart that it has made: inserted ops read the elements.
  absl::Status WriteOld(uint32_t i);
  absl::Status WriteOne(uint32_t i);

  // --- New ops -----------------------------------------------------------------------------------

  absl::Status WriteNew(const Op& op);
  // To the root block, or to the new block that is written.
  absl::Status Append(const NewOp& op);
  absl::Status Append(const std::vector<NewOp>& ops);
  // Of a variable that has a value.
  absl::StatusOr<Current> NowOf(Symbol var);
  NewOpOutput OutputOf(Symbol var);
  bool HasBoundPart(const Buffer& buffer) const;
  // An op on a buffer of parameters, as one on each: copies of them would not outlive the step.
  absl::Status WriteForParts(const Op& op, const Buffer& buffer);
  // A collective that waits for computation, and that computation waits for, has a stream of its
  // own: that of its ring. In new blocks, all are on the stream of computation.
  std::string StreamOf(const Op& op) const;
  absl::Status CheckOutputs(const Op& op) const;
  void SetCurrent(Symbol var, int64_t id, absl::string_view type);
  // Outputs of an op that is left out are its inputs.
  absl::Status Rename(const Op& op);
  absl::Status AddBuffer(const Op& op);
  // The value of a buffer that an op is about to read: the parts as they are now.
  absl::Status ConcatenateBuffer(Symbol var);
  // Takes a buffer apart before an op reads one of its parts.
  absl::Status SplitBufferOf(Symbol part);

  // --- New state and blocks ----------------------------------------------------------------------

  // New persistable variables. What the program reads before it writes it is 1.data; what it makes
  // is named after the last op that writes it.
  absl::Status DeclareState();
  absl::Status NameState(OpId op);
  // A conditional_block, as 1.if without results: its ops write parameters and state in place, and
  // variables of the step that have no value before blocks.
  // Paddle's executor takes these for outputs of the 1.if. Their values keep their ids around it.
  absl::Status WriteBranch(const Op& op);
  absl::Status WriteBody(int block);

  // Paddle runs the collectives of one block in the order of the file. A block with collectives
  // reads a value that is there once those before it have run; none may follow it outside of
  // blocks.
  absl::Status NoteCollective(const NewOp& op);
  // Op `inner` of the file is `outer`, or in its blocks.
  absl::Status NoteOldCollective(uint32_t outer, uint32_t inner);
  static absl::Status OutOfOrder();

  const Program& program_;
  const Import& import_;
  const Document& document_;
  std::vector<Current> current_;                     // by symbol
  std::vector<bool> is_replaced_;                    // by symbol: a new op has written the variable
  std::vector<std::unique_ptr<std::string>> types_;  // of new values
  std::vector<bool> is_written_;                     // by op of the file
  std::vector<bool> is_op_of_file_;      // by op of the file: it is an op of the imported program
  std::vector<uint32_t> companions_of_;  // by op of the file: the first one that comes with it
  uint32_t companions_end_ = 0;
  std::vector<bool> is_dropped_;  // by op of the file
  bool drops_any_ = false;
  // By op of the file: the variable that it names, a copy of that of its operand.
  absl::flat_hash_map<uint32_t, Symbol> named_by_sink_;
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> sinks_behind_;  // by OpId
  absl::flat_hash_map<uint32_t, bool> is_deferred_;                    // those
  absl::flat_hash_map<uint32_t, std::vector<Symbol>> state_behind_;    // by OpId
  absl::flat_hash_map<ValueIndex, std::pair<std::vector<int64_t>, int64_t>> lists_;
  absl::flat_hash_map<Symbol, Buffer> buffers_;
  absl::flat_hash_map<Symbol, Symbol> buffer_of_part_;
  absl::flat_hash_set<int64_t> waiting_rings_;
  absl::flat_hash_map<uint32_t, Renamed> renamed_;  // by the place of the operand in the file
  // Results of ops of the file that other variables hold now.
  absl::flat_hash_map<ValueIndex, Symbol> renamed_results_;
  absl::flat_hash_map<ValueIndex, std::vector<Symbol>> renamed_lists_;
  absl::flat_hash_map<uint32_t, const OpRule*> retyped_;  // by op of the file
  // By inserted ops, after the last op of the file.
  absl::flat_hash_set<Symbol> read_since_, written_since_;
  // Parameters, feeds and state, which outlive the step: what writes one must write in place, as
  // Paddle keeps the variable and not the value.
  absl::flat_hash_set<Symbol> is_bound_;
  // Variables of the step that first a new block writes: zeros before, which blocks write over.
  absl::flat_hash_set<Symbol> is_made_for_blocks_;
  NewOps new_ops_;
  size_t num_blocks_;  // of the file that is written
  bool is_in_branch_ = false;
  std::string body_;                    // of the new block that is written
  Current last_collective_;             // a result
  bool is_behind_collectives_ = false;  // of a block
  bool is_behind_new_block_ = false;    // with collectives
  bool has_new_collective_ = false;     // in the root block
  DocumentWriter writer_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_EXPORT_OPS_H_
