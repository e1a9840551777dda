// What `weft view` shows of a program: the model of the page.
#ifndef WEFT_TOOLS_VIEW_PROGRAM_VIEW_H_
#define WEFT_TOOLS_VIEW_PROGRAM_VIEW_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "tools/view/lanes.h"
#include "tools/view/op_numbers.h"
#include "tools/view/outline.h"
#include "tools/view/remarks_file.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// What an op does besides computing, or whether that is known.
enum class OpKind : uint8_t {
  kCompute,
  kCollective,  // a barrier, too
  kMessage,     // sends to one rank, or receives from it
  kStreamSync,
  kRingSetup,
  kFuse,         // gives variables one buffer
  kHoldsBlocks,  // runs blocks
  kUnknown,      // unregistered
};

enum class OpChange : uint8_t { kNone, kInserted, kChanged };

// Texts that many ops share, each stored once. Text 0 is empty.
class TextTable {
 public:
  TextTable() { Add(""); }
  uint32_t Add(const std::string& text);
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, uint32_t> ids_;
};

struct ViewedFinding {
  std::string rule, title, severity, variable, message;
  bool is_startup = false;
  int64_t op = -1;     // number, in the main program; -1: none
  int64_t other = -1;  // likewise: the op that it conflicts with
};

// An op of the original that the program does not have.
struct RemovedOp {
  int64_t before = 0;  // the number of the op that follows it in the program
  std::string text;    // its line of program text
};

struct ViewOptions {
  std::string name;                                  // of the program, such as its path
  const Program* original = nullptr;                 // the program before the rewrite; null: none
  const std::vector<FileRemark>* remarks = nullptr;  // of transpile --remarks; null: none
  const Findings* findings = nullptr;                // of the program; null: not verified
  std::string verdict;                               // of the verifier, one line
  // False for a program that is not well-formed: then there is no prediction.
  bool predicts = true;
  PredictOptions predict;
  absl::optional<Lanes> measured;
};

// Ops are numbered over all blocks, one block after the other.
struct ProgramView {
  // O(arguments + attributes), and DiffPrograms if there is an original. The program must outlive
  // the view.
  static ProgramView Of(const Program& program, ViewOptions options);

  explicit ProgramView(const Program& viewed) : program(viewed), numbers(viewed) {}

  const Program& program;
  const OpNumbers numbers;
  std::string name, verdict;
  bool has_original = false, has_findings = false, has_remarks = false;
  std::vector<OutlineNode> outline;

  TextTable texts;
  std::vector<OpKind> kinds;      // by signature
  std::vector<uint32_t> attrs;    // by op: the text of its attributes, without minor ones
  std::vector<uint32_t> notes;    // by op: what communication does, in words
  std::vector<int64_t> bytes;     // by op: what a rank communicates, as declared
  std::vector<uint32_t> types;    // by Symbol: the text of the declared type
  std::vector<bool> persistable;  // by Symbol

  std::vector<OpChange> changes;                         // by op
  std::vector<std::pair<int64_t, std::string>> changed;  // op, and what differs; in order of ops
  std::vector<RemovedOp> removed;                        // in order

  std::vector<FileRemark> remarks;
  // (op, remark), in order of ops: the remarks about variables of inserted and changed ops, and
  // about the first 200 members of their buffers.
  std::vector<std::pair<int64_t, int64_t>> reasons;

  std::vector<ViewedFinding> findings;
  Lanes predicted;  // empty: none
  absl::optional<Lanes> measured;
};

}  // namespace weft

#endif  // WEFT_TOOLS_VIEW_PROGRAM_VIEW_H_
