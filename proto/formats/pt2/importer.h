// Training steps that PyTorch has exported, as programs of ProgramDesc: passes, analyses, verifier
// and executor know only these. docs/pytorch.md has the rules.
#ifndef WEFT_PROTO_FORMATS_PT2_IMPORTER_H_
#define WEFT_PROTO_FORMATS_PT2_IMPORTER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "proto/formats/pt2/graph.h"
#include "proto/program.h"

namespace weft::pt2 {

// Where a program comes from: its archive.
class Import : public ProgramOrigin {
 public:
  explicit Import(FileBytes bytes) : file(std::move(bytes)) {}
  const FileBytes file;

  // Weft's ops for streams order what it runs.
  bool OrdersByData() const override { return false; }
  const std::vector<std::string>& distributed_params() const override { return no_params_; }
  bool AreOneOp(OpId a, OpId b) const override { return false; }

 private:
  std::vector<std::string> no_params_;
};
// Null for programs of other formats.
const Import* ImportOf(const Program& program);

// Parameters and buffers are persistable variables of the names that they have in PyTorch's
// state_dict, inputs are data variables, the loss is loss, and other values have the names of their
// nodes. Symbolic sizes are -1. The gradient of the loss begins at a tensor of ones like it; a
// gradient of a parameter is what the update of the parameter reads, without decay that is added to
// it. Updates (proto/formats/pt2/updates.h) come last: other ops read what parameters and state are
// at the start of the step. A learning rate is a persistable variable, optimizer.lr.
//
// InvalidArgument, Unimplemented: errors of the archive, of FindUpdates; operators that no op of
// Weft computes (all of them at once, the first with its line in the user's script). O(bytes).
absl::StatusOr<Program> ImportProgram(FileBytes file);

// The operators that ImportProgram reads ("aten.relu.default"), with the op that each becomes;
// empty: ops that its arguments decide.
std::map<std::string, std::string> ReadOperators();

// What persistable variables of ImportProgram begin with. O(bytes).
absl::StatusOr<std::map<std::string, Weight>> ReadStartValues(FileBytes file);

// A startup program that makes them: an op for each, which has the numbers. Unimplemented:
// half precision. O(bytes).
absl::StatusOr<Program> ImportStartup(FileBytes file);

}  // namespace weft::pt2

#endif  // WEFT_PROTO_FORMATS_PT2_IMPORTER_H_
