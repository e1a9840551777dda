// Changes to a program, collected and then applied at once.
#ifndef WEFT_PROTO_REWRITER_H_
#define WEFT_PROTO_REWRITER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/program.h"

namespace weft {

// Collects edits of a program, then applies all of them, or none, in one pass over each block that
// changes.
//
//   Rewriter rewriter(&program);
//   rewriter.InsertAfter(completes_gradient, all_reduce);
//   WEFT_RETURN_IF_ERROR(rewriter.Commit());
//
// Edits name ops of the program before the commit, so no position shifts. Ops that are inserted
// before (or after) the same op are in the order of the calls. Ops inserted next to an op that
// moves or is erased stay at its old position.
//
// Calls only record edits; Commit reports mistakes.
class Rewriter {
 public:
  // `program` must outlive the rewriter, and nothing else may change it until Commit.
  explicit Rewriter(Program* program) : program_(*program) {}

  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // The new op goes into the block of `anchor`.
  void InsertBefore(OpId anchor, const pb::OpDesc& op);
  void InsertAfter(OpId anchor, const pb::OpDesc& op);
  // At the start or the end of a block, outside of ops that are inserted next to its first or last
  // op.
  void Prepend(int block, const pb::OpDesc& op);
  void Append(int block, const pb::OpDesc& op);

  // The op keeps its id and its position. Arguments that it keeps need not be declared.
  void Replace(OpId op, const pb::OpDesc& with);
  void Erase(OpId op);
  // Within one block. An op moves at most once in a commit.
  void MoveBefore(OpId op, OpId anchor);

  // Adds a block after all others. Returns its number, which ops and variables of the same commit
  // may name.
  int AddBlock(int parent);

  // Declares a variable after the existing ones.
  void AddVar(int block, const pb::VarDesc& var);
  // The variable keeps its id, its position and its name.
  void ReplaceVar(VarId var, const pb::VarDesc& with);
  // Removes the declaration. Its name stays taken for this commit. With such edits, a commit also
  // takes O(arguments).
  void EraseVar(VarId var) { erased_vars_.push_back(var); }

  bool empty() const {
    return insertions_.empty() && edits_.empty() && var_edits_.empty() && erased_vars_.empty() &&
           new_blocks_.empty();
  }

  // Checks all edits, then applies them. O(ops of the changed blocks + edits). After an error, the
  // program's blocks, ops and variables are unchanged. The rewriter is empty afterwards.
  // InvalidArgument: a new op or variable that is not well-formed; an argument that neither a
  // visible block nor these edits declare; a sub-block that does not exist or would contain itself;
  // blocks nested deeper than Program::kMaxBlockDepth; a variable declared twice; an erased
  // variable that an op names; an anchor that does not exist or is in another block; an op that two
  // edits replace, move or erase; a variable that two edits replace or erase.
  absl::Status Commit();

 private:
  enum class Position : uint8_t { kBefore, kAfter, kBlockBegin, kBlockEnd };
  // A serialized field of the block: tag, length, message. Bytes take a tenth of the memory of
  // generated classes.
  struct Bytes {
    absl::string_view field;
    uint8_t header_size = 0;
  };
  struct Insertion {
    Position position;
    OpId anchor;  // kBefore, kAfter
    int block;    // kBlockBegin, kBlockEnd
    OpId moves;   // an existing op, if `op` is empty
    Bytes op;
  };
  struct OpEdit {
    OpId op;
    Bytes with;  // empty: erase
  };
  struct VarEdit {
    bool is_new;
    VarId replaces;  // of an edit that is not new
    int block;       // of a new variable
    Bytes var;
  };
  struct Staged;

  Bytes Serialize(const pb::OpDesc& op) { return Serialize(op, pb::BlockDesc::kOpsFieldNumber); }
  Bytes Serialize(const pb::VarDesc& var) {
    return Serialize(var, pb::BlockDesc::kVarsFieldNumber);
  }
  Bytes Serialize(const google::protobuf::MessageLite& message, int field_number);

  absl::Status Stage(Staged* staged);
  absl::Status StageBlocks();
  absl::Status StageVars(Staged* staged);
  absl::Status StageErasedVars(const Staged& staged);
  absl::Status StageEdits(Staged* staged);
  absl::Status StageInsertions(Staged* staged);
  absl::Status CheckNewOp(OpId id, OpId replaced) const;
  absl::Status CheckErasedVars(const Staged& staged) const;
  absl::Status CheckSubBlocks(const Staged& staged) const;
  absl::Status CheckBlock(int block, absl::string_view what) const;
  absl::Status CheckLive(OpId id, const Staged& staged, absl::string_view what) const;
  absl::Status EditedTwice(OpId id) const;
  void Rollback(const Staged& staged);
  void Apply(const Staged& staged);
  void RemoveVars(std::vector<bool>* block_changed);
  void PlaceNewBlocks(const Staged& staged);
  void ReorderBlocks(const Staged& staged, const std::vector<bool>& order_changed);

  Program& program_;
  std::deque<std::string> bytes_;  // of the edits
  std::vector<Insertion> insertions_;
  std::vector<OpEdit> edits_;
  std::vector<VarEdit> var_edits_;
  std::vector<VarId> erased_vars_;
  std::vector<int> new_blocks_;  // parents
};

}  // namespace weft

#endif  // WEFT_PROTO_REWRITER_H_
