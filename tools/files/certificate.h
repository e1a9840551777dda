// Certificates of rewrites (docs/certificate.md).
#ifndef WEFT_TOOLS_FILES_CERTIFICATE_H_
#define WEFT_TOOLS_FILES_CERTIFICATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/setting.h"

namespace weft {

struct Certificate {
  std::string claim, proof;
};

// The contents of program files, binary or of PIR. Without startup programs, the last two are
// empty.
struct CertifiedFiles {
  std::string_view original, result, original_startup, startup;
};

// What a certificate claims.
struct CertificateClaim {
  absl::optional<int> nranks;  // none: any number of ranks
  Setting::Reduction reduction = Setting::Reduction::kByLoss;
};

// Compares the programs, and has the checker try what it found: what is returned is certified.
// FailedPrecondition with the first step that does not follow. O(files), times the number of
// states through which differences between ranks spread one after the other.
absl::StatusOr<Certificate> MakeCertificate(const CertifiedFiles& files,
                                            const CertificateClaim& claim);

// Programs in memory. Without startup programs, the last two are null.
struct CertifiedPrograms {
  const Program *original, *result, *original_startup, *startup;
};

// Paths. Without startup programs, the last two are empty.
struct CertifiedPaths {
  std::string original, result, original_startup, startup;
};

// Writes claim.txt and proof.txt to a directory, which is made if it is missing. Returns the line
// of the claim with the fingerprint of the schedule. Errors name the file at fault; InvalidArgument
// for files in other formats, and for standard input or output.
absl::StatusOr<std::string> WriteCertificate(const CertifiedPaths& paths,
                                             const CertificateClaim& claim, const std::string& dir);

// The same of the files that WriteProgram makes of programs: of PIR if they came in that, else
// binary. Errors name `result`.
absl::StatusOr<std::string> WriteCertificate(const CertifiedPrograms& programs,
                                             const std::string& result,
                                             const CertificateClaim& claim, const std::string& dir);

}  // namespace weft

#endif  // WEFT_TOOLS_FILES_CERTIFICATE_H_
