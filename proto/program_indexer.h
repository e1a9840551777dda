// Builds the index of a Program. Used by Program and Rewriter only.
#ifndef WEFT_PROTO_PROGRAM_INDEXER_H_
#define WEFT_PROTO_PROGRAM_INDEXER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/message_reader.h"
#include "proto/program.h"

namespace weft {

// Fills the program's records from messages as they are read, and interns their names.
class ProgramIndexer {
 public:
  explicit ProgramIndexer(Program* program) : program_(*program) {}

  // Consecutive fields of a block, in program->bytes_. The caller has checked their lengths.
  struct Slice {
    int block = 0;
    size_t first_op = 0, first_var = 0;  // positions in the block
    size_t num_ops = 0, num_vars = 0;
    absl::string_view fields;
  };

  // Reserves the memory of an empty program.
  void Reserve(size_t num_ops, size_t num_vars, size_t num_symbols, size_t num_bytes);
  // Appends the records of ops and variables. Names, other than in AddOp and AddVar, are not
  // checked.
  absl::Status AddSlice(const Slice& slice);
  // Appends the records of another program, indexed from the bytes that follow. Indexing these
  // bytes here would give the same result, including the numbers of symbols and signatures.
  void Append(const ProgramIndexer& part);
  // InvalidArgument for the first name of the program that is not UTF-8.
  absl::Status CheckNames() const;
  // Makes copies of the program share the records that exist now.
  void Share();
  const std::vector<OpId>& ops_with_sub_blocks() const { return ops_with_sub_blocks_; }

  // Append the record of one op or variable. `field` is a field of BlockDesc: `header_size` bytes
  // of tag and length, then the message. The program must own its memory. The caller adds the
  // result to the block's ops or variables.
  absl::StatusOr<OpId> AddOp(absl::string_view field, uint8_t header_size, int block);
  absl::StatusOr<VarId> AddVar(absl::string_view field, uint8_t header_size, int block);
  // Lets FindVar find a variable, unless its name is kEmptyVarName. InvalidArgument if its block
  // already declares the name.
  absl::Status LinkVar(VarId id);

 private:
  // A name to be interned; its slot of the hash table is being prefetched.
  struct PendingName {
    absl::string_view name;
    uint32_t hash;
    uint32_t target;  // index into vars_ or args_
    bool is_var;
  };

  absl::StatusOr<const OpReader::Message*> ReadOp(absl::string_view message, uint8_t header_size,
                                                  const MessagePosition& at);
  absl::Status ReadVar(absl::string_view message, uint8_t header_size, const MessagePosition& at);
  bool HasSlots(const OpReader::Message& op, const OpSignature& signature) const;
  uint32_t FindSignature(const OpReader::Message& op);
  std::vector<Symbol> AppendSymbols(const SymbolTable& table);
  std::vector<uint32_t> AppendSignatures(const Program& part, const std::vector<Symbol>& symbols);
  size_t FileOffset(absl::string_view part) const;

  // Interns a name in the next Flush, which follows soon.
  void AddPending(absl::string_view name, uint32_t target, bool is_var);
  void Flush();

  Program& program_;
  OpReader op_reader_;
  VarReader var_reader_;
  std::string key_;
  std::vector<PendingName> pending_;
  std::vector<OpId> ops_with_sub_blocks_;
};

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_INDEXER_H_
