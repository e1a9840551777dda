#include "c/handles.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/formats/program_file.h"
#include "tools/flags/command_line.h"

struct weft_status {
  weft_code code;
  std::string message;
};

namespace weft::c {
namespace {

// There may be no memory for another.
weft_status* OutOfMemory() {
  static weft_status* const status = new weft_status{WEFT_RESOURCE_EXHAUSTED, "out of memory"};
  return status;
}

weft_status* NewStatus(const absl::Status& status) {
  if (status.ok()) return nullptr;
  std::string message;
  for (const char c : WithOptions(status.message())) {
    message += c == '\n' ? std::string("\n  ") : std::string(1, c);
  }
  return new weft_status{static_cast<weft_code>(status.code()), std::move(message)};
}

}  // namespace

weft_status* Guard(absl::FunctionRef<absl::Status()> run) {
  try {
    try {
      return NewStatus(run());
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (const std::exception& error) {
      return NewStatus(absl::InternalError(error.what()));
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

absl::Status Parse(CLI::App& app, absl::string_view command, const weft_options* options,
                   std::vector<std::string> more) {
  std::vector<std::string> arguments;
  if (options != nullptr) {
    if (options->command != command) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected options of ", command, ", found options of ", options->command));
    }
    arguments = options->arguments;
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return ParseArguments(app, std::move(arguments));
}

std::string NameOf(const weft_program& program, absl::string_view other) {
  return program.name.empty() ? std::string(other) : program.name;
}

absl::StatusOr<absl::optional<Program>> StartupIfGiven(const weft_program* startup,
                                                       absl::string_view other) {
  if (startup == nullptr) return absl::nullopt;
  absl::StatusOr<Program> read = StartupOf(startup->program);
  WEFT_RETURN_IF_ERROR(Annotate(NameOf(*startup, other), read.status()));
  return *std::move(read);
}

void Messages::Set(std::vector<Said> said) {
  texts_.clear();
  messages_.clear();
  for (const Said& one : said) texts_.push_back(WithOptions(one.text));
  for (size_t i = 0; i < said.size(); ++i) {
    messages_.push_back({static_cast<weft_severity>(said[i].severity), texts_[i].c_str()});
  }
}

weft_text* NewText(std::string bytes) { return new weft_text{std::move(bytes)}; }

weft_program* NewProgram(Program program, std::string name) {
  return new weft_program{std::move(program), std::move(name)};
}

}  // namespace weft::c

int weft_c_version(void) { return WEFT_C_VERSION; }
const char* weft_version(void) { return weft::kVersion; }

weft_code weft_status_code(const weft_status* status) {
  return status == nullptr ? WEFT_OK : status->code;
}
const char* weft_status_message(const weft_status* status) {
  return status == nullptr ? "" : status->message.c_str();
}
void weft_status_free(weft_status* status) {
  if (status != weft::c::OutOfMemory()) delete status;
}

const char* weft_text_data(const weft_text* text) { return text->bytes.c_str(); }
size_t weft_text_size(const weft_text* text) { return text->bytes.size(); }
void weft_text_free(weft_text* text) { delete text; }
