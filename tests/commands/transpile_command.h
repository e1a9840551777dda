// Runs the transpile command as users do, for tests.
#ifndef WEFT_TESTS_COMMANDS_TRANSPILE_COMMAND_H_
#define WEFT_TESTS_COMMANDS_TRANSPILE_COMMAND_H_

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/program.h"
#include "tools/job/process.h"

namespace weft::testing {

// Each test has an empty directory. A test that uses it has //tools:transpile and
// //tests/data:fit_a_line in its data.
class TranspileCommandTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A path in the directory; absolute paths and "-" stay as they are.
  std::string Path(const std::string& name) const;
  // Writes a file and gives its path.
  std::string MakeFile(const std::string& name, const std::string& bytes) const;
  std::string Read(const std::string& name) const;
  // Every name in the directory, hidden ones too.
  std::set<std::string> Names() const;

  // transpile with these arguments, and 600 MB of address space: small input needs no more.
  // (Without the limit under sanitizers, which reserve all there is.)
  ProcessResult Run(const std::vector<std::string>& args, const std::string& input = "") const;
  // --mode grad_allreduce with more flags, from `in` to out.pb.
  ProcessResult GradAllReduce(const std::string& in,
                              const std::vector<std::string>& more = {}) const;

  // Runs with the output file out.pb there already. Expects this exit status, one line on standard
  // error, "transpile: error: ...<part>...", nothing on standard output, and every file as it was.
  void ExpectFails(int status, const std::vector<std::string>& args, const std::string& part);
  // The same with --mode grad_allreduce, `in`, out.pb and more flags: status 1.
  void ExpectRefuses(const std::string& in, const std::string& part,
                     const std::vector<std::string>& more = {});

  static std::string MainBytes();     // of fit_a_line
  static std::string StartupBytes();  // of fit_a_line
  static pb::ProgramDesc MainDesc();

 private:
  std::string dir_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_COMMANDS_TRANSPILE_COMMAND_H_
