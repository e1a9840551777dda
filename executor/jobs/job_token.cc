#include "executor/jobs/job_token.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kTokenBytes = 16, kMaxTokenDigits = 128;

std::string RandomBytes(size_t size) {
  // Finds the system's source of random bytes; once is enough. Without one, nothing here is secret.
  if (sodium_init() < 0) std::abort();
  std::string bytes(size, '\0');
  randombytes_buf(&bytes[0], size);
  return bytes;
}

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// Closes a file.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

std::string NewJobToken() { return absl::BytesToHexString(RandomBytes(kTokenBytes)); }

std::string NewJobNonce() { return RandomBytes(kJobNonceBytes); }

absl::Status CheckJobToken(absl::string_view token) {
  bool is_hex = token.size() >= 2 * kTokenBytes && token.size() <= kMaxTokenDigits;
  for (char c : token) is_hex = is_hex && absl::ascii_isxdigit(c);
  if (is_hex) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected ", 2 * kTokenBytes, " to ",
                                                 kMaxTokenDigits, " hexadecimal digits, found ",
                                                 token.size(), " bytes"));
}

std::string JobProof(absl::string_view token, JobSide side, absl::string_view connecting_nonce,
                     absl::string_view listening_nonce) {
  static_assert(kJobProofBytes == crypto_auth_hmacsha256_BYTES, "the proof is the whole hash");
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, Bytes(token), token.size());
  const std::string text = absl::StrCat(side == JobSide::kConnects ? "connects" : "listens.",
                                        connecting_nonce, listening_nonce);
  crypto_auth_hmacsha256_update(&state, Bytes(text), text.size());
  std::string proof(kJobProofBytes, '\0');
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(&proof[0]));
  return proof;
}

std::string TokenOfPart(absl::string_view token, absl::string_view name) {
  return absl::BytesToHexString(JobProof(token, JobSide::kConnects, name, ""));
}

std::string SecretSocketName(absl::string_view token, absl::string_view name) {
  const std::string proof = JobProof(token, JobSide::kListens, name, "");
  return absl::StrCat("weft-", absl::BytesToHexString(proof.substr(0, kTokenBytes)));
}

bool IsSameProof(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::StatusOr<std::unique_ptr<JobTokenFile>> JobTokenFile::Create(const std::string& path,
                                                                   const JobTokenText& text) {
  const auto error = [&](absl::string_view what, int number) {
    return absl::UnavailableError(absl::StrCat(
        "cannot ", what, " the file of the job's token, ", path, ": ", std::strerror(number),
        "; WEFT_JOB_TOKEN or option:job_token_file name another"));
  };
  // Renamed, so that nobody reads a part.
  const std::string whole = absl::StrCat(path, ".", getpid(), ".tmp");
  unlink(whole.c_str());
  const Descriptor file(
      open(whole.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return error("make", errno);
  auto made = std::unique_ptr<JobTokenFile>(new JobTokenFile(path));
  const std::string line = absl::StrCat(text.token, " ", text.port, "\n");
  struct stat info = {};
  errno = EIO;  // of a write that stops early
  const bool is_written =
      fchmod(file.get(), S_IRUSR | S_IWUSR) == 0 &&
      write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
      fstat(file.get(), &info) == 0 && rename(whole.c_str(), path.c_str()) == 0;
  if (!is_written) {
    const int number = errno;
    unlink(whole.c_str());
    return error("write", number);
  }
  made->device_ = info.st_dev;
  made->inode_ = info.st_ino;
  return made;
}

JobTokenFile::~JobTokenFile() {
  struct stat info = {};
  if (stat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) {
    unlink(path_.c_str());
  }
}

absl::StatusOr<JobTokenText> ReadJobTokenFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    const int number = errno;
    const std::string text = absl::StrCat(path, ": ", std::strerror(number));
    if (number == ENOENT) return absl::NotFoundError(text);
    if (number == ELOOP) return absl::InvalidArgumentError(absl::StrCat(path, ": is a link"));
    return absl::PermissionDeniedError(text);
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  if (info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": expected a file of this user, found one of user ", info.st_uid));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof(mode), "%03o", info.st_mode & 0777);
    return absl::PermissionDeniedError(absl::StrCat(
        path, ": expected a file that its user alone may read (chmod 600), found mode ", mode));
  }
  std::array<char, kMaxTokenDigits + 16> buffer;  // and a port
  const ssize_t size = read(file.get(), buffer.data(), buffer.size());
  const absl::string_view line =
      absl::StripAsciiWhitespace(absl::string_view(buffer.data(), size < 0 ? 0 : size));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  JobTokenText text;
  text.token = std::string(words[0]);
  const absl::Status status = CheckJobToken(text.token);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": token: ", status.message()));
  }
  const bool has_port = words.size() == 2 && absl::SimpleAtoi(words[1], &text.port) &&
                        text.port >= 0 && text.port <= 65535;
  if (words.size() > 1 && !has_port) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a token alone"));
  }
  return text;
}

}  // namespace weft
