// Programs in files.
#ifndef WEFT_PROTO_FORMATS_PROGRAM_FILE_H_
#define WEFT_PROTO_FORMATS_PROGRAM_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "proto/program.h"

namespace weft {

enum class ProgramFormat {
  kBinary,       // a serialized ProgramDesc
  kProtoText,    // protobuf's text format
  kProgramText,  // docs/program_text.md
  kPir,          // Paddle 3's own, as JSON: docs/pir.md
  kPt2,          // an archive of torch.export.save: docs/pytorch.md
};

// The names of program files, for help and errors. "-" is standard input or output.
inline constexpr char kProgramFileNames[] =
    ".pb, .pdmodel, __model__ or - (binary), .pbtxt (protobuf text), .prog (program text), .json "
    "(Paddle 3) or .pt2 (PyTorch)";

// By the file's name. InvalidArgument, listing kProgramFileNames, for any other name.
absl::StatusOr<ProgramFormat> ProgramFormatOf(const std::string& path);

// By the file's bytes; by its name where these leave it open, as the bytes of no program do.
// InvalidArgument for an unknown name then.
absl::StatusOr<ProgramFormat> FormatOfFile(const std::string& path, absl::string_view bytes);

// Without the byte order mark that some editors put before a text, and that begins no program.
absl::string_view WithoutByteOrderMark(absl::string_view bytes);

// Errors do not name a path. O(file) memory.
absl::StatusOr<Program> ParseProgramFile(FileBytes file, ProgramFormat format);

// Tells the format by FormatOfFile. Errors do not name the path. A binary file is mapped as long as
// the program lives. O(file) memory.
absl::StatusOr<Program> ReadProgram(const std::string& path);

// The same of a startup program; of a training step of PyTorch, what makes the values that it
// begins with.
absl::StatusOr<Program> ReadStartupProgram(const std::string& path);

// The same of a program that was read as one: a training step of PyTorch gives what makes its
// values, any other program is returned as it is.
absl::StatusOr<Program> StartupOf(const Program& program);

// Reads several programs. Paths of equal files give the same program, which is read once: the ranks
// of a job mostly run copies. Errors begin with the path.
absl::StatusOr<std::vector<std::shared_ptr<const Program>>> ReadPrograms(
    absl::Span<const std::string> paths);
// Of startup programs, as ReadStartupProgram.
absl::StatusOr<std::vector<std::shared_ptr<const Program>>> ReadStartupPrograms(
    absl::Span<const std::string> paths);

struct ProgramOutput {
  const Program* program;
  std::string path;
};

// Programs that are written, but have not replaced their targets yet.
//
//   WEFT_ASSIGN_OR_RETURN(StagedPrograms staged, StagedPrograms::Write(outputs));
//   WEFT_RETURN_IF_ERROR(staged.Commit());
//
// Without Commit, all targets stay as they were. The error names the path.
class StagedPrograms {
 public:
  // Makes the files durable beside their targets. Commit writes programs that go elsewhere, such as
  // to standard output (AtomicFile::WritesDirectly). The programs must outlive the result and must
  // not change.
  static absl::StatusOr<StagedPrograms> Write(std::vector<ProgramOutput> outputs);

  // Replaces no target if a program cannot be written, or another one not be replaced.
  absl::Status Commit();

  // The two halves of Commit, as of AtomicFile.
  absl::Status Replace();
  void Keep();

 private:
  StagedPrograms() = default;

  std::vector<ProgramOutput> outputs_;
  std::vector<absl::optional<AtomicFile>> files_;  // by output; none: to be written by Commit
};

// Writes all programs, or none: all files are durable before the first replaces its target. The
// error names the path.
absl::Status WritePrograms(absl::Span<const ProgramOutput> outputs);
absl::Status WriteProgram(const Program& program, const std::string& path);

}  // namespace weft

#endif  // WEFT_PROTO_FORMATS_PROGRAM_FILE_H_
