#include "proto/formats/pir/document_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::pir {

DocumentWriter::DocumentWriter(const Document& document) : document_(document) {
  const char* const begin = document.bytes().data();
  AddView({begin, static_cast<size_t>(document.op(0).bytes.data() - begin)});
}

absl::Status DocumentWriter::AddOld(uint32_t op, const std::vector<Edit>& edits) {
  const absl::string_view bytes = document_.op(op).bytes;
  const char* const end = bytes.data() + bytes.size();
  const char* copied = bytes.data();
  if (op != 0) {  // the space before the first op is in the file's head
    while (copied > document_.bytes().data() && absl::ascii_isspace(copied[-1])) --copied;
  }
  const char* const begin = copied;
  if (edits.empty()) {
    WEFT_RETURN_IF_ERROR(Check(bytes));
    const bool follows = has_ops_ && begin[-1] == ',' && last_is_view_ &&
                         out_.pieces.back().data() + out_.pieces.back().size() == begin - 1;
    if (follows) {
      AddView({begin - 1, static_cast<size_t>(end - begin) + 1});
    } else {
      Separate();
      AddView({begin, static_cast<size_t>(end - begin)});
    }
    has_ops_ = true;
    return absl::OkStatus();
  }
  std::string text;
  for (const Edit& edit : edits) {
    text.append(copied, edit.old.data());
    absl::StrAppend(&text, edit.now);
    copied = edit.old.data() + edit.old.size();
  }
  text.append(copied, end);
  WEFT_RETURN_IF_ERROR(Check(absl::StripLeadingAsciiWhitespace(text)));
  Separate();
  AddCopy(text);
  return absl::OkStatus();
}

absl::Status DocumentWriter::AddNew(absl::string_view op) {
  WEFT_RETURN_IF_ERROR(Check(op));
  Separate();
  AddCopy(op);
  return absl::OkStatus();
}

SerializedProgram DocumentWriter::Finish() {
  const absl::string_view bytes = document_.bytes();
  const absl::string_view last = document_.op(document_.blocks()[0].ops.back()).bytes;
  const char* const end = last.data() + last.size();
  AddView({end, static_cast<size_t>(bytes.data() + bytes.size() - end)});
  return std::move(out_);
}

absl::Status DocumentWriter::Check(absl::string_view op) {
  const absl::Status status = checker_.Check(op);
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("the file that was written: ", status.message()));
}

void DocumentWriter::Separate() {
  if (std::exchange(has_ops_, true)) AddCopy(",");
}

void DocumentWriter::AddView(absl::string_view bytes) {
  out_.size += bytes.size();
  absl::string_view* const last = out_.pieces.empty() ? nullptr : &out_.pieces.back();
  if (last_is_view_ && last->data() + last->size() == bytes.data()) {
    *last = absl::string_view(last->data(), last->size() + bytes.size());
    return;
  }
  out_.pieces.push_back(bytes);
  last_is_view_ = true;
}

void DocumentWriter::AddCopy(absl::string_view bytes) {
  constexpr size_t kBytesOfBuffer = 64 << 10;
  out_.size += bytes.size();
  const bool fits = !out_.owned.empty() &&
                    out_.owned.back().size() + bytes.size() <= out_.owned.back().capacity();
  if (!fits) out_.owned.emplace_back().reserve(std::max(kBytesOfBuffer, bytes.size()));
  std::string& buffer = out_.owned.back();
  const char* const begin = buffer.data() + buffer.size();
  buffer.append(bytes.data(), bytes.size());
  if (fits && !last_is_view_) {
    absl::string_view& last = out_.pieces.back();
    last = absl::string_view(last.data(), last.size() + bytes.size());
  } else {
    out_.pieces.emplace_back(begin, bytes.size());
  }
  last_is_view_ = false;
}

}  // namespace weft::pir
