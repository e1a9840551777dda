// weft_verify.
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "c/handles.h"
#include "c/weft.h"
#include "tools/cmd/weft_verify.h"
#include "tools/files/certificate.h"

struct weft_report {
  bool ok = false;
  std::string text, json;
  weft::Verdict verdict;
  std::vector<std::string> op_types, messages;
  std::vector<weft_finding> findings;
};

namespace weft::c {
namespace {

absl::Status ParseVerify(const weft_options* options, absl::Span<const weft_program* const> mains,
                         absl::Span<const weft_program* const> startups,
                         const weft_program* original, const weft_program* original_startup,
                         const weft_program* server, VerifyFlags* flags) {
  CLI::App app;
  AddVerifyFlags(&app, flags);
  std::vector<std::string> more;
  more.insert(more.end(), startups.size(), "--startup=startup");
  const std::tuple<const char*, const weft_program*, std::string*> others[] = {
      {"original", original, &flags->original},
      {"original_startup", original_startup, &flags->original_startup},
      {"server", server, &flags->server}};
  for (const auto& [name, other, field] : others) {
    if (other != nullptr) more.push_back(absl::StrCat("--", name, "=", name));
  }
  more.emplace_back("--");
  more.insert(more.end(), mains.size(), "main");
  WEFT_RETURN_IF_ERROR(Parse(app, "verify", options, std::move(more)));
  for (size_t i = 0; i < mains.size(); ++i) flags->mains[i] = NameOf(*mains[i], "main");
  for (size_t i = 0; i < startups.size(); ++i) {
    flags->startups[i] = NameOf(*startups[i], "startup");
  }
  for (const auto& [name, other, field] : others) {
    if (other != nullptr) *field = NameOf(*other, name);
  }
  return absl::OkStatus();
}

// Findings with texts in vectors that do not move.
void AddFindings(const VerifiedPrograms& programs, weft_report* report) {
  const std::vector<Finding>& all = report->verdict.findings.all();
  report->op_types.resize(all.size());
  report->messages.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Finding& finding = all[i];
    const ConstProgramPair& pair = programs.ranks[finding.program.rank];
    weft_finding of_c = {};
    of_c.rule = finding.rule.c_str();
    of_c.severity = static_cast<weft_severity>(finding.severity);
    of_c.rank = programs.ranks.size() == 1 ? -1 : finding.program.rank;
    of_c.in_startup = finding.program.is_startup ? 1 : 0;
    of_c.op_index = -1;
    of_c.variable = finding.variable.c_str();
    report->messages[i] = WithOptions(finding.message);
    of_c.message = report->messages[i].c_str();
    if (finding.op.valid()) {
      const Op op = (finding.program.is_startup ? pair.startup : pair.main)->op(finding.op);
      report->op_types[i] = std::string(op.type());
      of_c.op_type = report->op_types[i].c_str();
      of_c.block = op.block();
      of_c.op_index = op.position();
    }
    report->findings.push_back(of_c);
  }
}

}  // namespace
}  // namespace weft::c

weft_status* weft_verify(const weft_options* options, const weft_program* const* mains,
                         size_t num_mains, const weft_program* const* startups, size_t num_startups,
                         const weft_program* original, const weft_program* original_startup,
                         const weft_program* server, weft_report** report) {
  return weft::c::Guard([&]() -> absl::Status {
    const auto all_mains = absl::MakeConstSpan(mains, num_mains);
    const auto all_startups = absl::MakeConstSpan(startups, num_startups);
    weft::VerifyFlags flags;
    WEFT_RETURN_IF_ERROR(weft::c::ParseVerify(options, all_mains, all_startups, original,
                                              original_startup, server, &flags));
    weft::VerifiedPrograms programs;
    for (const weft_program* main : all_mains) {
      programs.mains.push_back(std::make_shared<const weft::Program>(main->program));
    }
    for (const weft_program* startup : all_startups) {
      WEFT_ASSIGN_OR_RETURN(auto read, weft::c::StartupIfGiven(startup, "startup"));
      programs.startups.push_back(std::make_shared<const weft::Program>(*std::move(read)));
    }
    if (original != nullptr) programs.original = original->program;
    WEFT_ASSIGN_OR_RETURN(programs.original_startup,
                          weft::c::StartupIfGiven(original_startup, "original_startup"));
    if (server != nullptr) programs.server = server->program;
    auto made = std::make_unique<weft_report>();
    WEFT_ASSIGN_OR_RETURN(made->verdict, weft::VerifyPrograms(flags, &programs));
    if (made->verdict.IsRight() && !flags.certificate.empty()) {
      const bool has_startup = num_startups > 0;
      WEFT_RETURN_IF_ERROR(
          weft::WriteCertificate({&original->program, &mains[0]->program,
                                  has_startup ? &*programs.original_startup : nullptr,
                                  has_startup ? programs.startups[0].get() : nullptr},
                                 flags.mains[0],
                                 {made->verdict.scope.nranks, made->verdict.reduction},
                                 flags.certificate)
              .status());
    }
    made->ok = made->verdict.IsRight();
    made->text =
        weft::c::WithOptions(weft::VerdictText(made->verdict, programs, /*short_lines=*/false));
    made->json = weft::c::WithOptions(weft::VerdictJson(made->verdict, programs));
    weft::c::AddFindings(programs, made.get());
    *report = made.release();
    return absl::OkStatus();
  });
}

int weft_report_ok(const weft_report* report) { return report->ok ? 1 : 0; }
size_t weft_report_num_findings(const weft_report* report) { return report->findings.size(); }
weft_finding weft_report_finding(const weft_report* report, size_t index) {
  return report->findings[index];
}
const char* weft_report_text(const weft_report* report) { return report->text.c_str(); }
const char* weft_report_json(const weft_report* report) { return report->json.c_str(); }
void weft_report_free(weft_report* report) { delete report; }
