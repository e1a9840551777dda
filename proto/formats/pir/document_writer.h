// The bytes of a file whose root block has other ops than the file that was read.
#ifndef WEFT_PROTO_FORMATS_PIR_DOCUMENT_WRITER_H_
#define WEFT_PROTO_FORMATS_PIR_DOCUMENT_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/formats/pir/document.h"
#include "proto/program.h"

namespace weft::pir {

// Writes pieces, so that what stays as it was is not in memory twice. Checks each op, because
// Paddle's loader accepts undefined operands, and computes nonsense.
class DocumentWriter {
 public:
  // A file whose root block has an op at least. The result refers to its bytes.
  explicit DocumentWriter(const Document& document);

  // Bytes of an op of the file, and what is written instead.
  struct Edit {
    absl::string_view old;
    std::string now;
  };

  // An op of the file with the white space before it. `edits`: in the order of the bytes.
  absl::Status AddOld(uint32_t op, const std::vector<Edit>& edits);
  absl::Status AddNew(absl::string_view op);

  // The file, after the last op. Once.
  SerializedProgram Finish();

 private:
  absl::Status Check(absl::string_view op);
  // Begins an op.
  void Separate();
  // Bytes of the file that was read. Extends the last piece if they follow it.
  void AddView(absl::string_view bytes);
  void AddCopy(absl::string_view bytes);

  const Document& document_;
  bool has_ops_ = false;
  bool last_is_view_ = false;  // the last piece
  OpChecker checker_;
  SerializedProgram out_;
};

}  // namespace weft::pir

#endif  // WEFT_PROTO_FORMATS_PIR_DOCUMENT_WRITER_H_
