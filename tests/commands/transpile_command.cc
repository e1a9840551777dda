#include "tests/commands/transpile_command.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "gmock/gmock.h"

namespace weft::testing {
namespace {

constexpr char kMain[] = "tests/data/fit_a_line/main.pb";
constexpr char kStartup[] = "tests/data/fit_a_line/startup.pb";

// The content of a regular file; "" for what is none, so that nothing waits for a device.
std::string ReadRegular(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

}  // namespace

void TranspileCommandTest::SetUp() {
  std::string pattern = ::testing::TempDir() + "/transpile.XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  dir_ = pattern;
}

void TranspileCommandTest::TearDown() {
  for (const std::string& name : Names()) {
    if (unlink(Path(name).c_str()) != 0) rmdir(Path(name).c_str());
  }
  rmdir(dir_.c_str());
}

std::string TranspileCommandTest::Path(const std::string& name) const {
  return name == "-" || absl::StartsWith(name, "/") ? name : dir_ + "/" + name;
}

std::string TranspileCommandTest::MakeFile(const std::string& name,
                                           const std::string& bytes) const {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

std::string TranspileCommandTest::Read(const std::string& name) const {
  return ReadRegular(Path(name));
}

std::set<std::string> TranspileCommandTest::Names() const {
  std::set<std::string> names;
  DIR* dir = opendir(dir_.c_str());
  while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
  closedir(dir);
  names.erase(".");
  names.erase("..");
  return names;
}

ProcessResult TranspileCommandTest::Run(const std::vector<std::string>& args,
                                        const std::string& input) const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::string start = "exec \"$@\"";
#else
  const std::string start = "ulimit -v 600000 && exec \"$@\"";
#endif
  std::vector<std::string> command = {"/bin/sh", "-c", start, "sh", "tools/transpile"};
  command.insert(command.end(), args.begin(), args.end());
  return RunProcess(command, input);
}

ProcessResult TranspileCommandTest::GradAllReduce(const std::string& in,
                                                  const std::vector<std::string>& more) const {
  std::vector<std::string> args = {"--mode", "grad_allreduce", Path(in), Path("out.pb")};
  args.insert(args.end(), more.begin(), more.end());
  return Run(args);
}

void TranspileCommandTest::ExpectFails(int status, const std::vector<std::string>& args,
                                       const std::string& part) {
  if (Names().count("out.pb") == 0) MakeFile("out.pb", "old");
  std::map<std::string, std::string> before;
  for (const std::string& name : Names()) before[name] = Read(name);

  const ProcessResult result = Run(args);

  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_THAT(result.err, ::testing::StartsWith("transpile: error: "));
  EXPECT_THAT(result.err, ::testing::HasSubstr(part));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.out, "");
  std::map<std::string, std::string> after;
  for (const std::string& name : Names()) after[name] = Read(name);
  EXPECT_TRUE(after == before) << "files have changed";
}

void TranspileCommandTest::ExpectRefuses(const std::string& in, const std::string& part,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--mode", "grad_allreduce", Path(in), Path("out.pb")};
  args.insert(args.end(), more.begin(), more.end());
  ExpectFails(1, args, part);
}

std::string TranspileCommandTest::MainBytes() { return ReadRegular(kMain); }
std::string TranspileCommandTest::StartupBytes() { return ReadRegular(kStartup); }

pb::ProgramDesc TranspileCommandTest::MainDesc() {
  pb::ProgramDesc desc;
  EXPECT_TRUE(desc.ParseFromString(MainBytes()));
  return desc;
}

}  // namespace weft::testing
