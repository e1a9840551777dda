// Programs, and what the commands say of them.
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/status_macros.h"
#include "c/handles.h"
#include "c/weft.h"
#include "proto/diff/program_diff.h"
#include "proto/formats/program_bytes.h"
#include "proto/formats/program_file.h"
#include "proto/formats/pt2/importer.h"
#include "tools/cmd/program_texts.h"

using weft::c::Guard;

namespace weft::c {
namespace {

absl::StatusOr<ProgramFormat> FormatOf(weft_format format) {
  switch (format) {
    case WEFT_FORMAT_BINARY:
      return ProgramFormat::kBinary;
    case WEFT_FORMAT_PROTO_TEXT:
      return ProgramFormat::kProtoText;
    case WEFT_FORMAT_PROGRAM_TEXT:
      return ProgramFormat::kProgramText;
    case WEFT_FORMAT_PIR:
      return ProgramFormat::kPir;
    case WEFT_FORMAT_PT2:
      return ProgramFormat::kPt2;
  }
  return absl::InvalidArgumentError(absl::StrCat("format: expected 0 to 4, found ", format));
}

}  // namespace
}  // namespace weft::c

weft_status* weft_program_read(const char* path, weft_program** program) {
  return Guard([&]() -> absl::Status {
    absl::StatusOr<weft::Program> read = weft::ReadProgramCopy(path);
    WEFT_RETURN_IF_ERROR(weft::Annotate(path, read.status()));
    *program = weft::c::NewProgram(*std::move(read), path);
    return absl::OkStatus();
  });
}

weft_status* weft_program_parse(const void* bytes, size_t size, weft_format format,
                                const char* name, weft_program** program) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const weft::ProgramFormat known, weft::c::FormatOf(format));
    const auto owned = std::make_shared<std::string>(static_cast<const char*>(bytes), size);
    absl::StatusOr<weft::Program> read = weft::ParseProgramFile({owned, *owned}, known);
    WEFT_RETURN_IF_ERROR(weft::Annotate(name, read.status()));
    *program = weft::c::NewProgram(*std::move(read), name);
    return absl::OkStatus();
  });
}

weft_status* weft_program_write(const weft_program* program, const char* path) {
  return Guard([&] { return weft::WriteProgram(program->program, path); });
}

weft_status* weft_program_serialize(const weft_program* program, weft_format format,
                                    weft_text** text) {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const weft::ProgramFormat known, weft::c::FormatOf(format));
    absl::StatusOr<std::string> bytes = weft::ProgramBytes(program->program, known);
    WEFT_RETURN_IF_ERROR(weft::Annotate(program->name, bytes.status()));
    *text = weft::c::NewText(*std::move(bytes));
    return absl::OkStatus();
  });
}

weft_format weft_program_format(const weft_program* program) {
  const auto& origin = program->program.origin();
  return origin != nullptr && origin->OrdersByData() ? WEFT_FORMAT_PIR : WEFT_FORMAT_BINARY;
}
weft_status* weft_program_archive(const weft_program* program, weft_text** archive) {
  return Guard([&] {
    const weft::pt2::Import* const step = weft::pt2::ImportOf(program->program);
    *archive = weft::c::NewText(step == nullptr ? "" : std::string(step->file.bytes));
    return absl::OkStatus();
  });
}

weft_status* weft_program_with_archive(const weft_program* program, const void* archive,
                                       size_t size, weft_program** result) {
  return Guard([&]() -> absl::Status {
    const auto owned = std::make_shared<std::string>(static_cast<const char*>(archive), size);
    const absl::StatusOr<weft::Program> step = weft::pt2::ImportProgram({owned, *owned});
    WEFT_RETURN_IF_ERROR(weft::Annotate(program->name, step.status()));
    *result = weft::c::NewProgram(program->program, program->name);
    (*result)->program.set_origin(step->origin());
    return absl::OkStatus();
  });
}

const char* weft_program_name(const weft_program* program) { return program->name.c_str(); }
size_t weft_program_num_ops(const weft_program* program) { return program->program.num_ops(); }
void weft_program_free(weft_program* program) { delete program; }

weft_status* weft_diff(const weft_program* a, const weft_program* b, weft_text** text) {
  return Guard([&] {
    *text = weft::c::NewText(weft::DifferencesText(weft::DiffPrograms(a->program, b->program)));
    return absl::OkStatus();
  });
}

weft_status* weft_stats(const weft_options* options, const weft_program* program,
                        weft_text** text) {
  return Guard([&]() -> absl::Status {
    CLI::App app;
    weft::StatsFlags flags;
    weft::AddStatsFlags(&app, &flags);
    WEFT_RETURN_IF_ERROR(weft::c::Parse(app, "stats", options, {"--", "program"}));
    flags.file = weft::c::NameOf(*program, "program");
    std::vector<weft::Said> said;
    WEFT_ASSIGN_OR_RETURN(std::string stats, weft::StatsText(flags, program->program, &said));
    *text = weft::c::NewText(weft::c::WithOptions(stats));
    return absl::OkStatus();
  });
}

weft_status* weft_plan(const weft_options* options, const weft_program* program, weft_text** text) {
  return Guard([&]() -> absl::Status {
    CLI::App app;
    weft::PlanFlags flags;
    weft::AddPlanFlags(&app, &flags);
    WEFT_RETURN_IF_ERROR(weft::c::Parse(app, "plan", options, {"--", "program"}));
    flags.file = weft::c::NameOf(*program, "program");
    std::vector<weft::Said> said;
    WEFT_ASSIGN_OR_RETURN(std::string plan, weft::PlanText(flags, program->program, &said));
    *text = weft::c::NewText(weft::c::WithOptions(plan));
    return absl::OkStatus();
  });
}

weft_status* weft_view(const weft_options* options, const weft_program* program,
                       const weft_program* startup, const weft_program* original,
                       const weft_program* original_startup, weft_text** text) {
  return Guard([&]() -> absl::Status {
    CLI::App app;
    weft::ViewFlags flags;
    weft::AddViewFlags(&app, &flags);
    std::vector<std::string> more = {"--out=page.html"};
    const std::tuple<const char*, const weft_program*, std::string*> others[] = {
        {"startup", startup, &flags.startup},
        {"original", original, &flags.original},
        {"original_startup", original_startup, &flags.original_startup}};
    for (const auto& [name, other, field] : others) {
      if (other != nullptr) more.push_back(absl::StrCat("--", name, "=", name));
    }
    more.insert(more.end(), {"--", "program"});
    WEFT_RETURN_IF_ERROR(weft::c::Parse(app, "view", options, std::move(more)));
    flags.file = weft::c::NameOf(*program, "program");
    for (const auto& [name, other, field] : others) {
      if (other != nullptr) *field = weft::c::NameOf(*other, name);
    }
    weft::ViewedPrograms programs = {program->program, {}, {}, {}};
    if (original != nullptr) programs.original = original->program;
    WEFT_ASSIGN_OR_RETURN(programs.startup, weft::c::StartupIfGiven(startup, "startup"));
    WEFT_ASSIGN_OR_RETURN(programs.original_startup,
                          weft::c::StartupIfGiven(original_startup, "original_startup"));
    WEFT_ASSIGN_OR_RETURN(std::string page, weft::PageText(flags, std::move(programs)));
    *text = weft::c::NewText(std::move(page));
    return absl::OkStatus();
  });
}
