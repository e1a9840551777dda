// Arguments and files of runs, for tests.
#ifndef WEFT_TOOLS_JOB_RUN_OUTPUTS_TESTING_H_
#define WEFT_TOOLS_JOB_RUN_OUTPUTS_TESTING_H_

#include <string>
#include <vector>

namespace weft::testing {

using Args = std::vector<std::string>;
Args operator+(Args args, const Args& more);

// A path that no other test has: tests run at the same time.
std::string TestPath(const std::string& name);
// Or why the file cannot be read.
std::string Contents(const std::string& path);
// A file of metrics without the times.
std::string MetricsWithoutTimes(const std::string& path);

}  // namespace weft::testing

#endif  // WEFT_TOOLS_JOB_RUN_OUTPUTS_TESTING_H_
