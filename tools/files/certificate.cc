#include "tools/files/certificate.h"

#include <sys/stat.h>

#include <cerrno>
#include <future>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/annotate.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "checker/check.h"
#include "checker/format.h"
#include "checker/pir.h"
#include "proto/formats/program_bytes.h"
#include "proto/formats/program_file.h"

namespace weft {
namespace {

// Which ops are the next ones of both programs, of the result alone, or of the original alone:
// "=12\n+1\n-2\n".
class EditScript {
 public:
  void Add(char step) {
    if (step != step_) End();
    step_ = step;
    ++count_;
  }
  std::string Take() {
    End();
    return std::move(script_);
  }

 private:
  void End() {
    if (count_ > 0) absl::StrAppend(&script_, std::string(1, step_), count_, "\n");
    count_ = 0;
  }

  std::string script_;
  char step_ = '=';
  int64_t count_ = 0;
};

// Ops of a type that rules may leave out, by all that counts of them.
class OpsThatStay {
 public:
  OpsThatStay(checker::Fields ops, bool is_startup) : is_startup_(is_startup) {
    while (ops.Next(4)) {
      if (MayLeaveOut(ops.Bytes())) ops_.insert(Essence(ops.Bytes()));
    }
  }
  // An op of the original that the result has not.
  bool LeavesOut(std::string_view op) const {
    return MayLeaveOut(op) && ops_.count(Essence(op)) == 0;
  }

  // `of_shares`: of what an op on shares has in common with those in whose place it is.
  static std::string Essence(std::string_view op, bool of_shares = false) {
    std::string essence(checker::TextOf(op, 3));
    for (const std::string_view field :
         of_shares ? checker::AttrsOf(op) : checker::SortedFields(op)) {
      absl::StrAppend(&essence, field.size(), ":", std::string(field));
    }
    return essence;
  }

 private:
  bool MayLeaveOut(std::string_view op) const {
    const checker::Op parsed(op);
    const bool is_backward = !is_startup_ && (parsed.Number("op_role", 0) & 15) == 1;
    return !is_backward && checker::MayLeaveOut(parsed.type, is_startup_);
  }

  const bool is_startup_;
  std::set<std::string> ops_;
};

// `shares`: the result shares states out, so it may leave out ops, and use other copies of inputs.
std::string CompareBinary(std::string_view original, std::string_view result, bool shares,
                          bool is_startup) {
  const auto ops_of = [](std::string_view program) {
    checker::Fields blocks(program);
    return checker::Fields(blocks.Next(1) ? blocks.Bytes() : "");
  };
  // Most ops have the same bytes; of others, the type tells new ones at once.
  const auto is_same = [&](std::string_view op, std::string_view next) {
    return op == next ||
           (checker::TextOf(op, 3) == checker::TextOf(next, 3) &&
            (checker::AreSameOps(op, next) ||
             (shares && checker::SortedFields(op, 2) == checker::SortedFields(next, 2))));
  };
  checker::Fields kept = ops_of(original), ops = ops_of(result);
  const OpsThatStay stay(shares ? ops : checker::Fields(), is_startup);
  EditScript script;
  bool has_next = kept.Next(4);
  // Left out as late as can be: before the next op that is kept, and before the first op on shares.
  std::set<std::string> pending;
  size_t num_pending = 0;
  const auto find_next = [&] {
    for (; shares && has_next && stay.LeavesOut(kept.Bytes()); has_next = kept.Next(4)) {
      pending.insert(OpsThatStay::Essence(kept.Bytes(), /*of_shares=*/true));
      ++num_pending;
    }
  };
  const auto leave_out = [&] {
    for (; num_pending > 0; --num_pending) script.Add('-');
    pending.clear();
  };
  find_next();
  while (ops.Next(4)) {
    const bool is_kept = has_next && is_same(ops.Bytes(), kept.Bytes());
    if (is_kept ||
        (num_pending > 0 && pending.count(OpsThatStay::Essence(ops.Bytes(), true)) > 0)) {
      leave_out();
    }
    script.Add(is_kept ? '=' : '+');
    if (!is_kept) continue;
    has_next = kept.Next(4);
    find_next();
  }
  leave_out();
  return script.Take();
}

// Weft leaves the numbers of results of ops that it keeps.
std::string ComparePir(std::string_view original, std::string_view result) {
  const std::vector<std::string_view> kept = checker::PirOpsOf(original);
  EditScript script;
  size_t next = 0;
  for (const std::string_view op : checker::PirOpsOf(result)) {
    const bool is_kept =
        next < kept.size() && checker::PirLabelOf(op) == checker::PirLabelOf(kept[next]);
    if (is_kept) ++next;
    script.Add(is_kept ? '=' : '+');
  }
  return script.Take();
}

// The hashes of files, each of which a thread of its own finds meanwhile.
class Hashes {
 public:
  explicit Hashes(std::initializer_list<std::string_view> files) {
    for (const std::string_view file : files) {
      hashes_[file.data()] = std::async(std::launch::async | std::launch::deferred,
                                        [file] { return checker::Sha256(file); });
    }
  }
  std::string Of(std::string_view file) const { return hashes_.at(file.data()).get(); }

 private:
  std::map<const char*, std::shared_future<std::string>> hashes_;
};

// "own w\n" for each state, or what is left out, if that is less.
std::string OwnLines(const std::set<std::string>& own, std::string_view original) {
  std::set<std::string> others = own;
  std::string lines, common = "all\n";
  size_t num_common = 0;
  checker::Fields blocks(checker::IsPir(original) ? "" : original);
  const bool has_block = blocks.Next(1);
  const checker::Block block(has_block ? blocks.Bytes() : "");
  for (checker::Fields decls(block.decls); decls.Next(3);) {
    const checker::Decl decl(decls.Bytes());
    if (!decl.IsState() || others.erase(std::string(decl.name)) > 0) continue;
    absl::StrAppend(&common, "common ", std::string(decl.name), "\n");
    ++num_common;
  }
  const bool names_all = has_block && num_common + others.size() < own.size();
  if (names_all) lines = common;
  for (const std::string& name : names_all ? others : own) {
    absl::StrAppend(&lines, "own ", name, "\n");
  }
  return lines;
}

// Finds out by trying which states each rank has to itself, and which travel between steps.
absl::StatusOr<Certificate> TryToProve(const CertifiedFiles& files, const Hashes& hashes,
                                       const std::string& header, const std::string& steps) {
  std::set<std::string> own;
  std::string late;
  while (true) {
    Certificate certificate;
    try {
      certificate.proof =
          absl::StrCat("weft-proof 1\n", late, OwnLines(own, files.original), steps);
      certificate.claim = checker::ClaimOf({header, certificate.proof, files.original, files.result,
                                            files.original_startup, files.startup},
                                           [&](auto file) { return hashes.Of(file); });
      return certificate;
    } catch (const checker::Failure& failure) {
      const size_t before = own.size() + late.size();
      own.insert(failure.own.begin(), failure.own.end());
      for (const std::string& state : failure.late) absl::StrAppend(&late, "late ", state, "\n");
      if (own.size() + late.size() > before) continue;
      return absl::FailedPreconditionError(failure.why);
    }
  }
}

absl::StatusOr<FileBytes> ReadCertified(const std::string& path) {
  if (path.empty()) return FileBytes();
  absl::StatusOr<FileBytes> file = path == "-" ? FileBytes() : ReadFile(path);
  WEFT_RETURN_IF_ERROR(Annotate(path, file.status()));
  const absl::StatusOr<ProgramFormat> format = FormatOfFile(path, file->bytes);
  if (path == "-" || !format.ok() ||
      (*format != ProgramFormat::kBinary && *format != ProgramFormat::kPir)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected a binary program file or one of PIR, of which there are certificates"));
  }
  return file;
}

std::string_view ViewOf(const FileBytes& file) { return {file.bytes.data(), file.bytes.size()}; }

absl::StatusOr<std::string> BytesOf(const Program* program) {
  if (program == nullptr) return std::string();
  const bool is_pir = program->origin() != nullptr && program->origin()->OrdersByData();
  return ProgramBytes(*program, is_pir ? ProgramFormat::kPir : ProgramFormat::kBinary);
}

// WriteCertificate, whose errors name `result`.
absl::StatusOr<std::string> Write(const CertifiedFiles& files, const std::string& result,
                                  const CertificateClaim& claim, const std::string& dir) {
  const absl::StatusOr<Certificate> certificate = MakeCertificate(files, claim);
  WEFT_RETURN_IF_ERROR(Annotate(absl::StrCat(result, ": no certificate"), certificate.status()));
  if (mkdir(dir.c_str(), 0777) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat(dir, ": cannot create the directory"));
  }
  for (const auto& [name, text] : {std::make_pair("/claim.txt", &certificate->claim),
                                   std::make_pair("/proof.txt", &certificate->proof)}) {
    WEFT_RETURN_IF_ERROR(Annotate(dir + name, WriteFile(dir + name, *text)));
  }
  const std::string& text = certificate->claim;
  const size_t begin = text.find("schedule: ");
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

absl::StatusOr<Certificate> MakeCertificate(const CertifiedFiles& files,
                                            const CertificateClaim& claim) {
  const Hashes hashes{files.original, files.result, files.original_startup, files.startup};
  std::string steps;
  bool averages = false, shares = false;
  try {
    const bool is_pir = checker::IsPir(files.original);
    if (!is_pir && !checker::IsPir(files.result)) {
      const std::string_view setting = checker::TextOf(files.result, 1001);
      averages = setting.find("\"averaging\"") != setting.npos;
      shares = setting.find("\"shares\"") != setting.npos;
    }
    const auto compare = [&](std::string_view original, std::string_view result, bool is_startup) {
      return is_pir ? ComparePir(original, result)
                    : CompareBinary(original, result, shares, is_startup);
    };
    steps = absl::StrCat("main\n", compare(files.original, files.result, false));
    if (!files.startup.empty()) {
      absl::StrAppend(&steps, "startup\n", compare(files.original_startup, files.startup, true));
    }
  } catch (const checker::Failure& failure) {
    return absl::FailedPreconditionError(failure.why);
  }
  const std::string ranks =
      absl::StrCat("ranks: ", claim.nranks.has_value() ? absl::StrCat(*claim.nranks) : "any", "\n");
  const auto prove = [&](const char* reduction) {
    return TryToProve(files, hashes, absl::StrCat(ranks, "gradients: ", reduction, "\n"), steps);
  };
  if (averages) return prove("own");
  if (claim.reduction == Setting::Reduction::kSum) return prove("sum");
  absl::StatusOr<Certificate> of_means = prove("mean");
  if (of_means.ok() || claim.reduction == Setting::Reduction::kMean) return of_means;
  absl::StatusOr<Certificate> of_sums = prove("sum");
  return of_sums.ok() ? of_sums : of_means;
}

absl::StatusOr<std::string> WriteCertificate(const CertifiedPaths& paths,
                                             const CertificateClaim& claim,
                                             const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const FileBytes original, ReadCertified(paths.original));
  WEFT_ASSIGN_OR_RETURN(const FileBytes result, ReadCertified(paths.result));
  WEFT_ASSIGN_OR_RETURN(const FileBytes original_startup, ReadCertified(paths.original_startup));
  WEFT_ASSIGN_OR_RETURN(const FileBytes startup, ReadCertified(paths.startup));
  return Write({ViewOf(original), ViewOf(result), ViewOf(original_startup), ViewOf(startup)},
               paths.result, claim, dir);
}

absl::StatusOr<std::string> WriteCertificate(const CertifiedPrograms& programs,
                                             const std::string& result,
                                             const CertificateClaim& claim,
                                             const std::string& dir) {
  std::string bytes[4];
  const Program* const all[] = {programs.original, programs.result, programs.original_startup,
                                programs.startup};
  for (size_t i = 0; i < 4; ++i) {
    WEFT_ASSIGN_OR_RETURN(bytes[i], BytesOf(all[i]));
  }
  return Write({bytes[0], bytes[1], bytes[2], bytes[3]}, result, claim, dir);
}

}  // namespace weft
