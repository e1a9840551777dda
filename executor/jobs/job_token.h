// The secret by which the processes of a job know each other.
#ifndef WEFT_EXECUTOR_JOBS_JOB_TOKEN_H_
#define WEFT_EXECUTOR_JOBS_JOB_TOKEN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/temporary_files.h"

namespace weft {

// 128 random bits, as 32 hexadecimal digits.
std::string NewJobToken();

// InvalidArgument for what is not 32 to 128 hexadecimal digits. The message does not quote the
// text.
absl::Status CheckJobToken(absl::string_view token);

// Each end of a connection proves that it knows the token, and does not tell it: the end sends
//
//   HMAC-SHA-256(token, side | nonce of the process that connects | nonce of process 0)
//
// Nonces are random, so that a proof is good for one connection, and the sides differ, so that
// nobody can send back the proof that it was sent.
inline constexpr size_t kJobNonceBytes = 32, kJobProofBytes = 32;
enum class JobSide { kConnects, kListens };

std::string NewJobNonce();
std::string JobProof(absl::string_view token, JobSide side, absl::string_view connecting_nonce,
                     absl::string_view listening_nonce);
// In a time that does not depend on the texts.
bool IsSameProof(absl::string_view a, absl::string_view b);

// What process 0 writes where no launcher hands out a token.
struct JobTokenText {
  std::string token;
  // Where process 0 listens; 0 and empty: at the address.
  int port = 0;
  std::string unix_name = {};
};

// A token for a part of the job, which tells nothing of that of the job.
std::string TokenOfPart(absl::string_view token, absl::string_view name);

// The name of a Unix socket that only those who know the token can tell from one that all can: no
// other user takes it first.
std::string SecretSocketName(absl::string_view token, absl::string_view name);

// A file that its user alone may read, from Create to the end of the object.
class JobTokenFile {
 public:
  // Replaces a file of that name. Unavailable, naming it: the system refuses. A signal that ends
  // the process removes the file, too.
  static absl::StatusOr<std::unique_ptr<JobTokenFile>> Create(const std::string& path,
                                                              const JobTokenText& text);
  ~JobTokenFile();

  JobTokenFile(const JobTokenFile&) = delete;
  JobTokenFile& operator=(const JobTokenFile&) = delete;

 private:
  explicit JobTokenFile(const std::string& path) : path_(path), on_signal_(path) {}

  const std::string path_;
  const RemovedOnSignal on_signal_;
  uint64_t device_ = 0, inode_ = 0;  // another process may have replaced it
};

// Reads such a file, or one that a user has made: the token, in a line.
//   NotFound            it is not there (yet)
//   PermissionDenied    it belongs to another user, or others may read or write it
//   InvalidArgument     it is no regular file, or has no token
absl::StatusOr<JobTokenText> ReadJobTokenFile(const std::string& path);

}  // namespace weft

#endif  // WEFT_EXECUTOR_JOBS_JOB_TOKEN_H_
