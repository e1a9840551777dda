#include "proto/formats/program_file.h"

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/free_memory.h"
#include "base/status_macros.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "proto/formats/pir/document.h"
#include "proto/formats/pir/exporter.h"
#include "proto/formats/pir/importer.h"
#include "proto/formats/program_bytes.h"
#include "proto/formats/pt2/exporter.h"
#include "proto/formats/pt2/importer.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

// Keeps the first error instead of printing it.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) {
      text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::StatusOr<Program> ParseProtoText(absl::string_view bytes) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.AllowPartialMessage(true);
  pb::ProgramDesc desc;
  if (!parser.ParseFromString(std::string(bytes), &desc)) {
    return absl::InvalidArgumentError(absl::StrCat("protobuf text: ", error.text()));
  }
  return Program::FromProto(desc);
}

// Protobuf's parser does not accept unknown fields as its printer prints them.
absl::StatusOr<std::string> PrintProtoText(const Program& program) {
  pb::ProgramDesc desc = program.ToProto();
  desc.clear_weft_setting();  // Paddle's parser of this text refuses fields that it does not know
  pb::ProgramDesc known = desc;
  known.DiscardUnknownFields();
  if (known.ByteSizeLong() != desc.ByteSizeLong()) {
    return absl::InvalidArgumentError(
        "the program holds fields or enum numbers that this version does not know; protobuf text "
        "cannot carry them: write .pb or .prog");
  }
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(desc, &text)) {
    return absl::InternalError("cannot print protobuf text");
  }
  return text;
}

bool LooksLikeText(absl::string_view bytes) {
  const absl::string_view start = bytes.substr(0, 64);
  for (unsigned char c : start) {
    if (c < 0x20 && c != '\n' && c != '\r' && c != '\t') return false;
  }
  return !start.empty();
}

// The first word of a text, after blanks and comments.
absl::string_view FirstWord(absl::string_view text) {
  for (;;) {
    text = absl::StripLeadingAsciiWhitespace(text);
    if (!absl::StartsWith(text, "#")) break;
    text.remove_prefix(std::min(text.size(), text.find('\n')));
  }
  size_t size = 0;
  while (size < text.size() && (absl::ascii_isalnum(text[size]) || text[size] == '_')) ++size;
  return text.substr(0, size);
}

absl::StatusOr<Program> ParsePir(const FileBytes& file) {
  if (!pir::LooksLikeDocument(file.bytes)) {
    return absl::InvalidArgumentError(
        "expected a program of Paddle 3, which begins with {\"base_code\":{\"magic\":\"pir\"; "
        "tools/paddle/export_program.py writes one");
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const pir::Document> document, pir::Document::Parse(file));
  return pir::ImportProgram(std::move(document));
}

// The pieces of a file. `text` holds those that have no other owner.
absl::StatusOr<SerializedProgram> PiecesOf(const Program& program, ProgramFormat format,
                                           std::string* text) {
  SerializedProgram serialized;
  if (format == ProgramFormat::kPt2) {
    WEFT_ASSIGN_OR_RETURN(*text, pt2::ExportProgram(program));
  } else if (format == ProgramFormat::kBinary) {
    serialized = program.SerializeToPieces();
  } else if (format == ProgramFormat::kProtoText) {
    WEFT_ASSIGN_OR_RETURN(*text, PrintProtoText(program));
  } else if (format == ProgramFormat::kPir) {
    WEFT_ASSIGN_OR_RETURN(serialized, pir::ExportToPieces(program));
  } else {
    *text = ProgramText(program);
  }
  if (serialized.size > INT_MAX) {
    return absl::OutOfRangeError(absl::StrCat("the program has grown to ", serialized.size,
                                              " bytes, more than the ", INT_MAX,
                                              " that can be read again"));
  }
  if (serialized.pieces.empty()) serialized.pieces = {*text};
  return serialized;
}

// Writes one output and makes it durable, but does not commit it.
absl::StatusOr<AtomicFile> Prepare(const ProgramOutput& output) {
  WEFT_ASSIGN_OR_RETURN(const ProgramFormat format, ProgramFormatOf(output.path));
  std::string text;
  WEFT_ASSIGN_OR_RETURN(SerializedProgram serialized, PiecesOf(*output.program, format, &text));
  // What serializing took, before the bytes of a file that was read come back into memory.
  constexpr size_t kLarge = 4 << 20;
  if (format == ProgramFormat::kPir && serialized.size >= kLarge) ReturnFreeMemory();
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(output.path));
  WEFT_RETURN_IF_ERROR(file.Write(serialized.pieces));
  WEFT_RETURN_IF_ERROR(file.Sync());
  return file;
}

absl::StatusOr<Program> ParseStartup(FileBytes file, ProgramFormat format) {
  if (format == ProgramFormat::kPt2) return pt2::ImportStartup(std::move(file));
  return ParseProgramFile(std::move(file), format);
}

absl::StatusOr<std::vector<std::shared_ptr<const Program>>> ReadAll(
    absl::Span<const std::string> paths,
    absl::StatusOr<Program> (*parse)(FileBytes file, ProgramFormat format)) {
  std::vector<std::shared_ptr<const Program>> programs;
  std::vector<FileBytes> files;  // of `known`
  absl::flat_hash_map<std::pair<ProgramFormat, absl::string_view>, std::shared_ptr<const Program>>
      known;
  for (const std::string& path : paths) {
    absl::StatusOr<FileBytes> file = ReadFile(path, INT_MAX);
    WEFT_RETURN_IF_ERROR(Annotate(path, file.status()));
    const absl::StatusOr<ProgramFormat> format = FormatOfFile(path, file->bytes);
    WEFT_RETURN_IF_ERROR(Annotate(path, format.status()));
    const bool may_repeat = paths.size() > 1;  // else, hashing it is of no use
    const auto key = std::make_pair(*format, file->bytes);
    const auto found = may_repeat ? known.find(key) : known.end();
    if (found != known.end()) {
      programs.push_back(found->second);
      continue;
    }
    absl::StatusOr<Program> program = parse(*file, *format);
    WEFT_RETURN_IF_ERROR(Annotate(path, program.status()));
    programs.push_back(std::make_shared<const Program>(*std::move(program)));
    if (may_repeat) known.emplace(key, programs.back());
    files.push_back(*std::move(file));
  }
  return programs;
}

}  // namespace

absl::StatusOr<ProgramFormat> ProgramFormatOf(const std::string& path) {
  const absl::string_view name = absl::string_view(path).substr(path.rfind('/') + 1);
  if (name == "-" || name == "__model__" || absl::EndsWith(name, ".pb") ||
      absl::EndsWith(name, ".pdmodel")) {
    return ProgramFormat::kBinary;
  }
  if (absl::EndsWith(name, ".pbtxt")) return ProgramFormat::kProtoText;
  if (absl::EndsWith(name, ".prog")) return ProgramFormat::kProgramText;
  if (absl::EndsWith(name, ".json")) return ProgramFormat::kPir;
  if (absl::EndsWith(name, ".pt2")) return ProgramFormat::kPt2;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown kind of program file; expected ", kProgramFileNames));
}

absl::StatusOr<ProgramFormat> FormatOfFile(const std::string& path, absl::string_view bytes) {
  absl::StatusOr<ProgramFormat> by_name = ProgramFormatOf(path);
  if (!by_name.ok()) {
    by_name = absl::InvalidArgumentError(absl::StrCat(
        by_name.status().message(), "; a binary program of another name begins with field blocks"));
  }
  if (pt2::LooksLikeArchive(bytes)) return ProgramFormat::kPt2;
  constexpr char kBlocks = 1 << 3 | 2;  // the tag of field blocks, of a message
  if (!bytes.empty() && bytes[0] == kBlocks && !LooksLikeText(bytes)) return ProgramFormat::kBinary;
  bytes = WithoutByteOrderMark(bytes);
  if (pir::LooksLikeDocument(bytes)) return ProgramFormat::kPir;
  if (LooksLikeText(bytes)) {
    const absl::string_view word = FirstWord(bytes);
    if (word == "program") return ProgramFormat::kProgramText;
    const auto* const field = pb::ProgramDesc::descriptor()->FindFieldByName(std::string(word));
    return field != nullptr ? ProgramFormat::kProtoText : by_name;
  }
  return by_name;
}

absl::string_view WithoutByteOrderMark(absl::string_view bytes) {
  absl::ConsumePrefix(&bytes, "\xEF\xBB\xBF");
  return bytes;
}

absl::StatusOr<Program> ParseProgramFile(FileBytes file, ProgramFormat format) {
  const bool is_text = format != ProgramFormat::kBinary && format != ProgramFormat::kPt2;
  if (is_text) file.bytes = WithoutByteOrderMark(file.bytes);
  if (format == ProgramFormat::kProtoText) return ParseProtoText(file.bytes);
  if (format == ProgramFormat::kProgramText) return ParseProgramText(file.bytes);
  if (format == ProgramFormat::kPir) return ParsePir(file);
  if (format == ProgramFormat::kPt2 || pt2::LooksLikeArchive(file.bytes)) {
    return pt2::ImportProgram(file);
  }
  // The owner is not moved: LooksLikeText reads the bytes of a refused program.
  absl::StatusOr<Program> program = Program::Parse(file.owner, file.bytes);
  if (program.ok() || !LooksLikeText(file.bytes)) return program;
  if (pir::LooksLikeDocument(file.bytes)) return ParsePir(file);
  return absl::InvalidArgumentError(
      absl::StrCat(program.status().message(),
                   " (it looks like text; text programs are named .pbtxt or .prog)"));
}

absl::StatusOr<std::string> ProgramBytes(const Program& program, ProgramFormat format) {
  std::string text;
  WEFT_ASSIGN_OR_RETURN(const SerializedProgram serialized, PiecesOf(program, format, &text));
  return absl::StrJoin(serialized.pieces, "");
}

absl::StatusOr<Program> ReadProgram(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const FileBytes file, ReadFile(path, INT_MAX));
  WEFT_ASSIGN_OR_RETURN(const ProgramFormat format, FormatOfFile(path, file.bytes));
  return ParseProgramFile(file, format);
}

absl::StatusOr<Program> ReadProgramCopy(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const FileBytes file, ReadFile(path, INT_MAX));
  const auto owned = std::make_shared<std::string>(file.bytes);
  WEFT_ASSIGN_OR_RETURN(const ProgramFormat format, FormatOfFile(path, *owned));
  return ParseProgramFile({owned, *owned}, format);
}

absl::StatusOr<Program> ReadStartupProgram(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(FileBytes file, ReadFile(path, INT_MAX));
  WEFT_ASSIGN_OR_RETURN(const ProgramFormat format, FormatOfFile(path, file.bytes));
  return ParseStartup(std::move(file), format);
}

absl::StatusOr<Program> StartupOf(const Program& program) {
  const pt2::Import* const step = pt2::ImportOf(program);
  return step == nullptr ? program : pt2::ImportStartup(step->file);
}

absl::StatusOr<std::vector<std::shared_ptr<const Program>>> ReadPrograms(
    absl::Span<const std::string> paths) {
  return ReadAll(paths, ParseProgramFile);
}

absl::StatusOr<std::vector<std::shared_ptr<const Program>>> ReadStartupPrograms(
    absl::Span<const std::string> paths) {
  return ReadAll(paths, ParseStartup);
}

absl::StatusOr<StagedPrograms> StagedPrograms::Write(std::vector<ProgramOutput> outputs) {
  StagedPrograms staged;
  staged.outputs_ = std::move(outputs);
  for (const ProgramOutput& output : staged.outputs_) {
    absl::optional<AtomicFile>& file = staged.files_.emplace_back();
    if (AtomicFile::WritesDirectly(output.path)) continue;
    absl::StatusOr<AtomicFile> written = Prepare(output);
    if (!written.ok()) return Annotate(output.path, written.status());
    file = *std::move(written);
  }
  return staged;
}

absl::Status StagedPrograms::Commit() {
  WEFT_RETURN_IF_ERROR(Replace());
  Keep();
  return absl::OkStatus();
}

void StagedPrograms::Keep() {
  for (absl::optional<AtomicFile>& file : files_) file->Keep();
}

absl::Status StagedPrograms::Replace() {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].has_value()) continue;
    absl::StatusOr<AtomicFile> written = Prepare(outputs_[i]);
    if (!written.ok()) return Annotate(outputs_[i].path, written.status());
    files_[i] = *std::move(written);
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    const absl::Status status = files_[i]->Replace();
    if (!status.ok()) return Annotate(outputs_[i].path, status);
  }
  return absl::OkStatus();
}

absl::Status WritePrograms(absl::Span<const ProgramOutput> outputs) {
  WEFT_ASSIGN_OR_RETURN(StagedPrograms staged,
                        StagedPrograms::Write({outputs.begin(), outputs.end()}));
  return staged.Commit();
}

absl::Status WriteProgram(const Program& program, const std::string& path) {
  return WritePrograms({{&program, path}});
}

}  // namespace weft
