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

  // Indexes program->bytes_ into an empty program, and checks it.
  absl::Status IndexProgram();

  // Append the record of one op, or variable: `field` is the whole field (`header_size` bytes of
  // tag and length, then the message) as it stands in BlockDesc, in memory that the program keeps.
  // The block's list of ops, or variables, is the caller's.
  absl::StatusOr<OpId> AddOp(absl::string_view field, uint8_t header_size, int block);
  absl::StatusOr<VarId> AddVar(absl::string_view field, uint8_t header_size, int block);
  // Makes a variable findable by name. InvalidArgument where its block declares the name already.
  absl::Status LinkVar(VarId id);

 private:
  // A name that waits to be interned: its place in the hash table is being prefetched.
  struct PendingName {
    absl::string_view name;
    uint32_t hash;
    uint32_t target;  // index into args_, or into vars_
  };

  absl::Status CountAndReserve();
  absl::Status ReadBlock(absl::string_view field, absl::string_view payload);
  absl::StatusOr<const OpReader::Message*> ReadOp(absl::string_view message, uint8_t header_size,
                                                  const MessagePlace& place);
  absl::Status ReadVar(absl::string_view message, uint8_t header_size, const MessagePlace& place);
  uint32_t LayoutOf(const OpReader::Message& op);
  uint32_t AddLayout(const OpReader::Message& op);
  absl::Status CheckNames() const;
  // Where a part of the file begins.
  size_t FileOffset(absl::string_view part) const;

  void Flush();
  void FlushArgs();
  void FlushVars();

  Program& program_;
  OpReader op_reader_;
  VarReader var_reader_;
  std::string key_;
  std::vector<PendingName> pending_args_, pending_vars_;
  absl::flat_hash_map<std::string, uint32_t, BytesHash> layout_of_key_;
  std::vector<OpId> ops_with_sub_blocks_;
};

}  // namespace weft

#endif  // WEFT_PROTO_PROGRAM_INDEXER_H_
