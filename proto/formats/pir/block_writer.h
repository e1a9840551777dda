// The blocks of an imported program, as bytes of a ProgramDesc.
#ifndef WEFT_PROTO_FORMATS_PIR_BLOCK_WRITER_H_
#define WEFT_PROTO_FORMATS_PIR_BLOCK_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/survey.h"
#include "proto/formats/pir/variables.h"
#include "proto/framework.pb.h"

namespace weft::pir {

// Bytes in pieces: they grow without a copy, and leave memory as they are moved.
class Pieces {
 public:
  size_t size() const { return size_; }
  // A field of a message that is a message itself.
  void Append(int field_number, const std::string& message);
  // To the end of `out`. Nothing is left.
  void MoveTo(std::string* out);

 private:
  std::deque<std::string> pieces_;
  size_t size_ = 0;
};

class BlockWriter {
 public:
  // For the blocks of the document that are blocks of the program.
  BlockWriter(const Document& document, const Survey& survey);

  // `op`: of the file.
  void AddOp(int block, const pb::OpDesc& desc, uint32_t op);

  // The program, with these variables in the blocks that declare them. Nothing is left.
  std::string Finish(const Variables& vars);
  // By OpId of the program: the op of the file. Nothing is left.
  std::vector<uint32_t> TakeOps();

 private:
  struct Block {
    int parent;
    Pieces ops;
    std::vector<uint32_t> op_of_op;  // of the file
  };
  std::deque<Block> blocks_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_BLOCK_WRITER_H_
