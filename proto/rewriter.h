// Changes to a program, collected and then applied at once.
#ifndef WEFT_PROTO_REWRITER_H_
#define WEFT_PROTO_REWRITER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/byte_arena.h"
#include "proto/program.h"

namespace weft {

// Collects edits against the ops of a program as they are now, then applies all of them in one
// pass over each block that changes, or none.
//
//   Rewriter rewriter(&program);
//   rewriter.InsertAfter(completes_gradient, all_reduce);
//   WEFT_RETURN_IF_ERROR(rewriter.Commit());
//
// Every edit names an op of the snapshot, so no position ever shifts. What is inserted before, or
// after, the same op stands in the order of the calls. An op that moves or is erased takes nothing
// along: what was inserted beside it stays at its old place.
//
// Calls only record; mistakes are reported by Commit.
class Rewriter {
 public:
  // `program` must outlive the rewriter and change through nothing else until Commit.
  explicit Rewriter(Program* program) : program_(*program) {}

  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // The new op goes into the block of `anchor`.
  void InsertBefore(OpId anchor, const pb::OpDesc& op);
  void InsertAfter(OpId anchor, const pb::OpDesc& op);
  // At the start or the end of a block, outside of whatever is inserted beside its ops.
  void Prepend(int block, const pb::OpDesc& op);
  void Append(int block, const pb::OpDesc& op);

  // The op keeps its id and its place.
  void Replace(OpId op, const pb::OpDesc& with);
  void Erase(OpId op);
  // Within one block. An op moves at most once in a commit.
  void MoveBefore(OpId op, OpId anchor);

  // A new block behind all others. Gives its number, which ops and variables of the same commit may
  // name already.
  int AddBlock(int parent);

  // Declared after the variables that are there.
  void AddVar(int block, const pb::VarDesc& var);
  // The variable keeps its id, its place and its name.
  void ReplaceVar(VarId var, const pb::VarDesc& with);

  bool empty() const {
    return insertions_.empty() && edits_.empty() && var_edits_.empty() && new_blocks_.empty();
  }

  // Checks everything, then applies everything: O(ops of the changed blocks + edits). On an error
  // the program's blocks, ops and variables are as they were. The rewriter is empty afterwards.
  // InvalidArgument: a new op or variable that is not well-formed, or names a variable that no
  // visible block declares (before or by these edits), a sub-block that does not exist or one that
  // would then contain itself; blocks nested deeper than Program::kMaxBlockDepth; a variable
  // declared twice; an anchor that is no live op or stands in another block; an op that two edits
  // replace, move or erase.
  absl::Status Commit();

 private:
  enum class Position : uint8_t { kBefore, kAfter, kBlockBegin, kBlockEnd };
  // A serialized field (tag, length, message), as it will stand in its block: new messages are kept
  // as bytes, which take a tenth of the memory of generated classes.
  struct Bytes {
    absl::string_view field;
    uint8_t header_size = 0;
  };
  struct Insertion {
    Position position;
    OpId anchor;  // kBefore, kAfter
    int block;    // kBlockBegin, kBlockEnd
    OpId moves;   // an op that is there already, where `op` is empty
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

  Bytes Serialize(const google::protobuf::MessageLite& message, int field_number);
  Bytes SerializeOp(const pb::OpDesc& op);
  Bytes SerializeVar(const pb::VarDesc& var);

  absl::Status Stage(Staged* staged);
  absl::Status StageBlocks();
  absl::Status StageVars(Staged* staged);
  absl::Status StageEdits(Staged* staged);
  absl::Status StageInsertions(Staged* staged);
  absl::Status CheckNewOp(OpId id) const;
  absl::Status CheckSubBlocks(const Staged& staged) const;
  absl::Status CheckBlock(int block, absl::string_view what) const;
  absl::Status CheckLive(OpId id, const Staged& staged, absl::string_view what) const;
  absl::Status EditedTwice(OpId id) const;
  void Rollback(const Staged& staged);
  void Apply(const Staged& staged);
  void PlaceNewBlocks(const Staged& staged);
  void ReorderBlocks(const Staged& staged, const std::vector<bool>& order_changed);

  Program& program_;
  ByteArena arena_;
  std::vector<Insertion> insertions_;
  std::vector<OpEdit> edits_;
  std::vector<VarEdit> var_edits_;
  std::vector<int> new_blocks_;  // parents
};

}  // namespace weft

#endif  // WEFT_PROTO_REWRITER_H_
