// Builds the index of a Program. Used by Program and Rewriter only.
#ifndef WEFT_PROTO_PROGRAM_INDEXER_H_
#define WEFT_PROTO_PROGRAM_INDEXER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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

  // Consecutive fields of a block, as they stand in program->bytes_. The caller has walked over
  // them: each is whole.
  struct Slice {
    int block = 0;
    size_t first_op = 0, first_var = 0;  // positions in the block
    size_t num_ops = 0, num_vars = 0;
    absl::string_view fields;
  };

  // Makes room for what an empty program shall hold.
  void Reserve(size_t num_ops, size_t num_vars, size_t num_symbols, size_t num_bytes);
  // Appends the records of ops and variables. Names, other than in AddOp and AddVar, are not
  // checked.
  absl::Status AddSlice(const Slice& slice);
  // Appends the records of another program, indexed from the bytes that follow. The result is that
  // of indexing these bytes here, down to the numbers of symbols and signatures.
  void Append(const ProgramIndexer& part);
  // InvalidArgument for the first name of the program that is not UTF-8.
  absl::Status CheckNames() const;
  // Has copies of the program share what is indexed so far.
  void Share();
  const std::vector<OpId>& ops_with_sub_blocks() const { return ops_with_sub_blocks_; }

  // Append the record of one op, or variable: `field` is the whole field (`header_size` bytes of
  // tag and length, then the message) as it stands in BlockDesc, in memory that the program keeps.
  // The block's list of ops, or variables, is the caller's.
  absl::StatusOr<OpId> AddOp(absl::string_view field, uint8_t header_size, int block);
  absl::StatusOr<VarId> AddVar(absl::string_view field, uint8_t header_size, int block);
  // Makes a variable findable by name, unless that is kEmptyVarName. InvalidArgument where its
  // block already declares the name.
  absl::Status LinkVar(VarId id);

 private:
  // A name that waits to be interned: its place in the hash table is being prefetched.
  struct PendingName {
    absl::string_view name;
    uint32_t hash;
    uint32_t target;  // index into args_, or into vars_
  };

  absl::StatusOr<const OpReader::Message*> ReadOp(absl::string_view message, uint8_t header_size,
                                                  const MessagePosition& place);
  absl::Status ReadVar(absl::string_view message, uint8_t header_size,
                       const MessagePosition& place);
  uint32_t SignatureOf(const OpReader::Message& op);
  uint32_t FindSignature(const OpReader::Message& op);
  bool HasSignature(const OpReader::Message& op, const OpSignature& signature) const;
  uint32_t AddSignature(const OpReader::Message& op);
  std::vector<Symbol> AppendSymbols(const SymbolTable& table);
  std::vector<uint32_t> AppendSignatures(const Program& part, const std::vector<Symbol>& symbols);
  // Where a part of the file begins.
  size_t FileOffset(absl::string_view part) const;

  void Flush();
  void FlushArgs();
  void FlushVars();
  void PrefetchNames(const std::vector<PendingName>& pending) const;

  Program& program_;
  OpReader op_reader_;
  VarReader var_reader_;
  std::string key_;
  std::vector<PendingName> pending_args_, pending_vars_;
  absl::flat_hash_map<std::string, uint32_t, BytesHash> signature_of_key_;
  // The last signature found for an attribute list: mostly the next one too.
  std::vector<uint32_t> last_signature_;
  std::vector<OpId> ops_with_sub_blocks_;
};

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_INDEXER_H_
