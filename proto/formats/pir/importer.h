// Programs of PIR as programs of ProgramDesc: passes, analyses, verifier and executor know only
// these. docs/pir.md has the rules.
#ifndef WEFT_PROTO_FORMATS_PIR_IMPORTER_H_
#define WEFT_PROTO_FORMATS_PIR_IMPORTER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "proto/formats/pir/document.h"
#include "proto/program.h"

namespace weft::pir {

// Where an imported program comes from. An op of the program is one of the file; 1.data,
// parameters, 0.combine, 0.split, 0.set_parameter, 0.shadow_output and constants that became
// attributes are not ops of the program.
//
// It keeps the bytes of the file, not the index over them, which takes half as much memory.
class Import : public ProgramOrigin {
 public:
  FileBytes file;
  int num_blocks = 0;                  // of the program, as imported
  size_t num_vars = 0;                 // the same
  std::vector<uint32_t> end_of_block;  // by block: the OpId after its last op
  std::vector<uint32_t> op_of_id;      // by OpId: of the document
  // By OpId: the bytes of the op as it was imported, to tell whether it has changed.
  absl::string_view BytesOf(size_t id) const {
    return {program + bytes_of_id[id].begin, bytes_of_id[id].size};
  }
  struct Bytes {
    uint32_t begin, size;
  };
  const char* program = nullptr;  // as imported, which keeps it
  std::vector<Bytes> bytes_of_id;
  std::vector<Symbol> variable_of_value;  // by ValueIndex; invalid for lists and values of no type
  absl::string_view setting;              // Document::setting

  bool OrdersByData() const override { return true; }
  const std::vector<std::string>& distributed_params() const override {
    return distributed_params_;
  }
  bool AreOneOp(OpId a, OpId b) const override {
    return std::max(a.value(), b.value()) < op_of_id.size() &&
           op_of_id[a.value()] == op_of_id[b.value()];
  }

 private:
  friend absl::StatusOr<Program> ImportProgram(std::shared_ptr<const Document> document);
  std::vector<std::string> distributed_params_;
};

// Each value becomes a variable, named after the parameter, the feed or the state that it is, after
// what it is the gradient of, or after the op and its id. A result that overwrites an operand is
// the same variable. Roles are found by following the data (proto/formats/pir/training.h).
//
// Op types that the table (proto/formats/pir/op_table.h) does not have are kept as pd_op.NAME with
// slots Operand0, ..., Result0, ...; one that writes in place has all operands among its outputs,
// too (Operand0Out, ...). One with blocks keeps these (attribute sub_blocks), and names what they
// read and overwrite around them (Captured, CapturedOut). InvalidArgument: a model for inference; a
// value that is read after an op has overwritten its variable; attributes or types that are not as
// the format says. ResourceExhausted: lists, constants or names that take many times the file in
// all their readers. O(bytes).
absl::StatusOr<Program> ImportProgram(std::shared_ptr<const Document> document);

// Unimplemented, naming the op, for a program with an unknown op that writes in place: its results
// may be other names of its operands, so that a program that is edited may be wrong. So may one be
// with an unknown op whose blocks access gradients, parameters or state: nobody knows when it runs
// them. O(arguments) for each op with blocks around them.
absl::Status CheckWritesAreKnown(const Program& program);

// The origin of an imported program; null for others.
const Import* ImportOf(const Program& program);
}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_IMPORTER_H_
