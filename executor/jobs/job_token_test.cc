#include "executor/jobs/job_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "base/testing/test.h"

namespace weft::testing {
namespace {

constexpr char kToken[] = "000102030405060708090a0b0c0d0e0f";

TEST(JobToken, TokensAreRandom) {
  const std::string a = NewJobToken(), b = NewJobToken();
  WEFT_EXPECT_OK(CheckJobToken(a));
  EXPECT_NE(a, b);
  EXPECT_NE(NewJobNonce(), NewJobNonce());
  EXPECT_EQ(NewJobNonce().size(), kJobNonceBytes);
}

TEST(JobToken, OtherTextIsNoToken) {
  for (const std::string text :
       {"", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdeg", "secret"}) {
    const absl::Status status = CheckJobToken(text);
    EXPECT_THAT(status, IsInvalidArgument(HasSubstr("hexadecimal digits")));
    if (!text.empty()) {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(text)));
    }
  }
  EXPECT_THAT(CheckJobToken(std::string(129, 'a')), Not(IsOk()));
}

// As Python's hmac computes it:
//   hmac.new(token, b"connects" + b"a" * 32 + b"b" * 32, "sha256").hexdigest()
TEST(JobToken, ProofsAreHmacSha256) {
  const std::string a(32, 'a'), b(32, 'b');
  EXPECT_EQ(absl::BytesToHexString(JobProof(kToken, JobSide::kConnects, a, b)),
            "8e06d19972ebb096046a083c47d6fd5a6b488e9c358df5b0f775584c32d91609");
  EXPECT_EQ(absl::BytesToHexString(JobProof(kToken, JobSide::kListens, a, b)),
            "6b5785b7fa10659ca8e407461caa5e8052c2228389a1fb5a8aff67dfb6580f7f");
  EXPECT_TRUE(IsSameProof("abc", "abc"));
  EXPECT_FALSE(IsSameProof("abc", "abd"));
  EXPECT_FALSE(IsSameProof("abc", "ab"));
}

std::string FilePath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

TEST(JobToken, FilesAreThereAsLongAsTheObject) {
  const std::string path = FilePath("token");
  {
    WEFT_ASSERT_OK_AND_ASSIGN(const auto file, JobTokenFile::Create(path, {kToken, 4711}));
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600);
    WEFT_ASSERT_OK_AND_ASSIGN(const JobTokenText text, ReadJobTokenFile(path));
    EXPECT_EQ(text.token, kToken);
    EXPECT_EQ(text.port, 4711);
  }
  EXPECT_THAT(ReadJobTokenFile(path).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

// Another job has taken the name: the file is its own.
TEST(JobToken, FilesOfOthersStay) {
  const std::string path = FilePath("shared");
  WEFT_ASSERT_OK_AND_ASSIGN(auto first, JobTokenFile::Create(path, {kToken, 1}));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto second, JobTokenFile::Create(path, {kToken, 2}));
  first = nullptr;
  WEFT_ASSERT_OK_AND_ASSIGN(const JobTokenText text, ReadJobTokenFile(path));
  EXPECT_EQ(text.port, 2);
}

TEST(JobToken, SignalsRemoveFiles) {
  const std::string path = FilePath("signal");
  WEFT_ASSERT_OK_AND_ASSIGN(const auto file, JobTokenFile::Create(path, {kToken, 1}));
  RemoveTemporaryFiles();  // as before a signal ends the process
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// One that an earlier run has left.
TEST(JobToken, FilesAreReplaced) {
  const std::string path = FilePath("left");
  WEFT_ASSERT_OK(WriteFile(path, "of somebody else"));
  WEFT_ASSERT_OK_AND_ASSIGN(const auto file, JobTokenFile::Create(path, {kToken, 0}));
  WEFT_ASSERT_OK_AND_ASSIGN(const JobTokenText text, ReadJobTokenFile(path));
  EXPECT_EQ(text.token, kToken);
}

TEST(JobToken, FilesThatOthersMayReadAreRefused) {
  const std::string path = FilePath("of_a_user");
  WEFT_ASSERT_OK(WriteFile(path, absl::string_view(kToken)));
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(ReadJobTokenFile(path).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("found mode 640")));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  WEFT_ASSERT_OK_AND_ASSIGN(const JobTokenText text, ReadJobTokenFile(path));
  EXPECT_EQ(text.port, 0);
  if (chown(path.c_str(), 65534, 65534) != 0) return;  // only root can
  EXPECT_THAT(ReadJobTokenFile(path).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("one of user 65534")));
}

TEST(JobToken, OtherFilesAreRefused) {
  const std::string path = FilePath("other");
  for (const std::string& text :
       {std::string("short"), std::string(kToken) + " x", std::string(kToken) + " 70000"}) {
    WEFT_ASSERT_OK(WriteFile(path, text));
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    EXPECT_THAT(ReadJobTokenFile(path).status(), IsInvalidArgument(HasSubstr(path)));
  }
  const std::string link = FilePath("link");
  unlink(link.c_str());
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  EXPECT_THAT(ReadJobTokenFile(link).status(), IsInvalidArgument(HasSubstr("is a link")));
  EXPECT_THAT(ReadJobTokenFile(::testing::TempDir()).status(),
              IsInvalidArgument(HasSubstr("regular file")));
}

TEST(JobToken, FilesThatCannotBeMadeAreNamed) {
  const std::string path = FilePath("no/such/folder");
  EXPECT_THAT(JobTokenFile::Create(path, {kToken, 0}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path)));
}

TEST(JobToken, TheNameOfASocketFollowsFromTokenAndName) {
  const std::string token(32, '1'), other(32, '2');
  const std::string name = SecretSocketName(token, "unix:a");
  EXPECT_EQ(name, SecretSocketName(token, "unix:a"));
  EXPECT_NE(name, SecretSocketName(other, "unix:a"));
  EXPECT_NE(name, SecretSocketName(token, "unix:b"));
  EXPECT_EQ(name.size(), 37u);
}

}  // namespace
}  // namespace weft::testing
