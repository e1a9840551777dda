#include "c/weft.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kData[] = "tests/data/fit_a_line/";

// "" for success, else the message of the error, which is freed.
std::string Message(weft_status* status) {
  std::string message = weft_status_message(status);
  EXPECT_EQ(status == nullptr, weft_status_code(status) == WEFT_OK);
  weft_status_free(status);
  return message;
}

template <typename T, void (*kFree)(T*)>
struct Free {
  void operator()(T* handle) const { kFree(handle); }
};
using Options = std::unique_ptr<weft_options, Free<weft_options, weft_options_free>>;
using ProgramHandle = std::unique_ptr<weft_program, Free<weft_program, weft_program_free>>;
using Result = std::unique_ptr<weft_transpiled, Free<weft_transpiled, weft_transpiled_free>>;
using Report = std::unique_ptr<weft_report, Free<weft_report, weft_report_free>>;
using RunHandle = std::unique_ptr<weft_run, Free<weft_run, weft_run_free>>;
using Arrays = std::unique_ptr<weft_arrays, Free<weft_arrays, weft_arrays_free>>;

Options With(const char* command, const std::vector<std::pair<const char*, const char*>>& values) {
  weft_options* options = nullptr;
  EXPECT_EQ(Message(weft_options_new(command, &options)), "");
  for (const auto& [name, value] : values) {
    EXPECT_EQ(Message(weft_options_set(options, name, value)), "");
  }
  return Options(options);
}

ProgramHandle Read(const std::string& path) {
  weft_program* program = nullptr;
  EXPECT_EQ(Message(weft_program_read(path.c_str(), &program)), "");
  return ProgramHandle(program);
}

std::string Text(weft_status* status, weft_text** text) {
  EXPECT_EQ(Message(status), "");
  std::string bytes(weft_text_data(*text), weft_text_size(*text));
  weft_text_free(*text);
  return bytes;
}

Result Transpile(const std::vector<std::pair<const char*, const char*>>& values,
                 const weft_program* main, const weft_program* startup) {
  weft_transpiled* result = nullptr;
  EXPECT_EQ(Message(weft_transpile(With("transpile", values).get(), main, startup, &result)), "");
  return Result(result);
}

class CTest : public ::testing::Test {
 protected:
  const ProgramHandle main_ = Read(std::string(kData) + "main.pb");
  const ProgramHandle startup_ = Read(std::string(kData) + "startup.pb");

  std::string TranspileError(const std::vector<std::pair<const char*, const char*>>& values) {
    weft_transpiled* result = nullptr;
    return Message(weft_transpile(With("transpile", values).get(), main_.get(), nullptr, &result));
  }
};

// --- Options
// --------------------------------------------------------------------------------------

TEST_F(CTest, OptionsAreThoseOfTheCommands) {
  const Options options = With("transpile", {});
  std::vector<std::string> names;
  for (size_t i = 0; i < weft_options_count(options.get()); ++i) {
    names.emplace_back(weft_options_get(options.get(), i).name);
  }
  for (const char* name : {"mode", "passes", "nranks", "dialect", "exact_loss", "verify"}) {
    EXPECT_THAT(names, ::testing::Contains(name));
  }
  // Arguments and results of weft_transpile.
  for (const char* name : {"in", "startup_in", "remarks", "help", "list_modes"}) {
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(name)));
  }
}

TEST_F(CTest, AnOptionSaysItsTypeAndHelp) {
  const Options options = With("run", {});
  for (size_t i = 0; i < weft_options_count(options.get()); ++i) {
    const weft_option option = weft_options_get(options.get(), i);
    if (option.name != std::string("ranks")) continue;
    EXPECT_STREQ(option.type, "N");
    EXPECT_STREQ(option.default_value, "1");
    EXPECT_STREQ(option.help, "Ranks of this process");
    EXPECT_EQ(option.is_flag, 0);
    return;
  }
  FAIL() << "no option ranks";
}

TEST_F(CTest, MessagesAreThoseOfTheCommands) {
  weft_options* none = nullptr;
  EXPECT_THAT(Message(weft_options_new("launch", &none)), HasSubstr("expected transpile, verify"));
  const Options options = With("transpile", {});
  EXPECT_EQ(Message(weft_options_set(options.get(), "mod", "x")),
            "transpile has no option mod; did you mean mode?");
  EXPECT_EQ(Message(weft_options_set(options.get(), "startup_in", "x")),
            "startup_in is of the command alone: expected what this call takes, and returns");
  EXPECT_THAT(Message(weft_options_set(options.get(), "exact_loss", "yes")),
              HasSubstr("expected true or false, found yes"));
  EXPECT_THAT(TranspileError({{"mode", "grad_alreduce"}}), HasSubstr("grad_allreduce"));
  EXPECT_EQ(TranspileError({}), "mode: expected option mode or option passes");
  EXPECT_EQ(TranspileError({{"mode", "grad_allreduce"}, {"nranks", "0"}}),
            "the number of ranks must be at least 1, found 0");
}

TEST_F(CTest, OptionsOfAnotherCommandAreRefused) {
  weft_transpiled* result = nullptr;
  EXPECT_EQ(Message(weft_transpile(With("run", {}).get(), main_.get(), nullptr, &result)),
            "expected options of transpile, found options of run");
}

// --- Programs
// -------------------------------------------------------------------------------------

TEST_F(CTest, AProgramGoesThroughAllFormatsOfProgramDesc) {
  const std::string name = "copy";
  for (const weft_format format :
       {WEFT_FORMAT_BINARY, WEFT_FORMAT_PROTO_TEXT, WEFT_FORMAT_PROGRAM_TEXT}) {
    weft_text* text = nullptr;
    const std::string bytes = Text(weft_program_serialize(main_.get(), format, &text), &text);
    weft_program* copy = nullptr;
    ASSERT_EQ(Message(weft_program_parse(bytes.data(), bytes.size(), format, "copy", &copy)), "");
    const ProgramHandle owner(copy);
    EXPECT_EQ(weft_program_num_ops(copy), weft_program_num_ops(main_.get()));
    EXPECT_STREQ(weft_program_name(copy), "copy");
    EXPECT_EQ(Text(weft_diff(main_.get(), copy, &text), &text), "");
  }
}

TEST_F(CTest, ErrorsNameTheProgram) {
  weft_program* none = nullptr;
  EXPECT_THAT(Message(weft_program_parse("abc", 3, WEFT_FORMAT_BINARY, "mine", &none)),
              StartsWith("mine: "));
  EXPECT_THAT(Message(weft_program_read("missing.pb", &none)), StartsWith("missing.pb: "));
  EXPECT_THAT(Message(weft_program_parse("abc", 3, WEFT_FORMAT_PT2, "mine", &none)),
              StartsWith("mine: not an archive of torch.export.save"));
  EXPECT_EQ(none, nullptr);
  weft_text* text = nullptr;
  EXPECT_THAT(Message(weft_program_serialize(main_.get(), WEFT_FORMAT_PT2, &text)),
              HasSubstr("expected a program that was read from a .pt2 file"));
  EXPECT_EQ(Message(weft_program_serialize(main_.get(), static_cast<weft_format>(5), &text)),
            "format: expected 0 to 4, found 5");
  EXPECT_EQ(text, nullptr);
}

TEST_F(CTest, WritingIsAsOfTheFile) {
  const std::string path = ::testing::TempDir() + "written.pb";
  ASSERT_EQ(Message(weft_program_write(main_.get(), path.c_str())), "");
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes written, ReadFile(path));
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes original, ReadFile(std::string(kData) + "main.pb"));
  EXPECT_EQ(written.bytes, original.bytes);
}

TEST_F(CTest, StatsPlanAndViewAreTexts) {
  weft_text* text = nullptr;
  EXPECT_THAT(Text(weft_stats(nullptr, main_.get(), &text), &text), HasSubstr("parameters"));
  EXPECT_THAT(Text(weft_plan(With("plan", {{"batch", "8"}}).get(), main_.get(), &text), &text),
              HasSubstr("estimated for a batch of 8"));
  EXPECT_THAT(Text(weft_view(nullptr, main_.get(), startup_.get(), nullptr, nullptr, &text), &text),
              HasSubstr("<html"));
}

// --- transpile and verify
// -------------------------------------------------------------------------

TEST_F(CTest, TranspileRewritesCopies) {
  weft_text* text = nullptr;
  const std::string before =
      Text(weft_program_serialize(main_.get(), WEFT_FORMAT_BINARY, &text), &text);
  std::vector<std::string> passes;
  const Options options = With("transpile", {{"mode", "grad_allreduce"}, {"nranks", "2"}});
  weft_options_set_progress(
      options.get(),
      [](void* context, const char* pass) {
        static_cast<std::vector<std::string>*>(context)->emplace_back(pass);
      },
      &passes);
  weft_transpiled* made = nullptr;
  ASSERT_EQ(Message(weft_transpile(options.get(), main_.get(), startup_.get(), &made)), "");
  const Result result(made);
  EXPECT_THAT(passes, ::testing::Contains("grad-all-reduce"));
  EXPECT_EQ(weft_transpiled_count(made), 1u);
  EXPECT_EQ(weft_transpiled_server(made), nullptr);
  EXPECT_THAT(weft_transpiled_remarks(made, 0), HasSubstr("\"passes\""));
  const ProgramHandle main(weft_transpiled_main(made, 0));
  EXPECT_GT(weft_program_num_ops(main.get()), weft_program_num_ops(main_.get()));
  EXPECT_EQ(Text(weft_program_serialize(main_.get(), WEFT_FORMAT_BINARY, &text), &text), before);
}

TEST_F(CTest, AllTrainersAndServersHaveTheirPrograms) {
  const Result all =
      Transpile({{"mode", "grad_allreduce"}, {"rank", "all"}, {"endpoints", "a:1,b:1"}},
                main_.get(), startup_.get());
  ASSERT_EQ(weft_transpiled_count(all.get()), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NE(ProgramHandle(weft_transpiled_startup(all.get(), i)), nullptr);
  }
}

TEST_F(CTest, AReportHasTheFindings) {
  const Result result = Transpile({{"mode", "grad_allreduce"}}, main_.get(), startup_.get());
  const ProgramHandle main(weft_transpiled_main(result.get(), 0));
  const ProgramHandle startup(weft_transpiled_startup(result.get(), 0));
  const weft_program* mains[] = {main.get()};
  const weft_program* startups[] = {startup.get()};
  weft_report* right = nullptr;
  ASSERT_EQ(
      Message(weft_verify(nullptr, mains, 1, startups, 1, main_.get(), nullptr, nullptr, &right)),
      "");
  const Report owner(right);
  EXPECT_EQ(weft_report_ok(right), 1);
  EXPECT_THAT(weft_report_text(right), HasSubstr("verified: any number of ranks"));

  // The original trains every rank apart.
  weft_report* wrong = nullptr;
  const weft_program* originals[] = {main_.get()};
  ASSERT_EQ(Message(weft_verify(With("verify", {{"nranks", "2"}}).get(), originals, 1, nullptr, 0,
                                nullptr, nullptr, nullptr, &wrong)),
            "");
  const Report wrong_owner(wrong);
  EXPECT_EQ(weft_report_ok(wrong), 0);
  ASSERT_GT(weft_report_num_findings(wrong), 0u);
  const weft_finding finding = weft_report_finding(wrong, 0);
  EXPECT_EQ(finding.severity, WEFT_SEVERITY_ERROR);
  EXPECT_EQ(finding.rank, -1);
  EXPECT_THAT(finding.message, HasSubstr(finding.op_type));
  EXPECT_THAT(weft_report_json(wrong), HasSubstr(finding.rule));
}

TEST_F(CTest, ACertificateIsOfTheSerializedPrograms) {
  const std::string first = ::testing::TempDir() + "first", again = ::testing::TempDir() + "again";
  const Result result = Transpile({{"mode", "grad_allreduce"}, {"certificate", first.c_str()}},
                                  main_.get(), startup_.get());
  const ProgramHandle main(weft_transpiled_main(result.get(), 0));
  const ProgramHandle startup(weft_transpiled_startup(result.get(), 0));
  const weft_program* mains[] = {main.get()};
  const weft_program* startups[] = {startup.get()};
  weft_report* report = nullptr;
  ASSERT_EQ(Message(weft_verify(With("verify", {{"certificate", again.c_str()}}).get(), mains, 1,
                                startups, 1, main_.get(), startup_.get(), nullptr, &report)),
            "");
  const Report owner(report);
  WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes claim, ReadFile(first + "/claim.txt"));
  EXPECT_THAT(std::string(claim.bytes), HasSubstr("schedule: "));
  for (const char* name : {"/claim.txt", "/proof.txt"}) {
    WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes a, ReadFile(first + name));
    WEFT_ASSERT_OK_AND_ASSIGN(const FileBytes b, ReadFile(again + name));
    EXPECT_EQ(a.bytes, b.bytes);
  }
}

// Names are no arguments of a command.
TEST_F(CTest, AnyNameOfAProgramWillDo) {
  weft_text* text = nullptr;
  const std::string main_bytes =
      Text(weft_program_serialize(main_.get(), WEFT_FORMAT_BINARY, &text), &text);
  const std::string startup_bytes =
      Text(weft_program_serialize(startup_.get(), WEFT_FORMAT_BINARY, &text), &text);
  const auto named = [](const std::string& bytes, const char* name) {
    weft_program* program = nullptr;
    EXPECT_EQ(
        Message(weft_program_parse(bytes.data(), bytes.size(), WEFT_FORMAT_BINARY, name, &program)),
        "");
    return ProgramHandle(program);
  };
  for (const char* name : {"--help", "-x", "--", "-", "", "[a]", "{a,b}", "@f", "{rank}", "\"a"}) {
    SCOPED_TRACE(name);
    const ProgramHandle main = named(main_bytes, name), startup = named(startup_bytes, name);
    EXPECT_THAT(Text(weft_stats(nullptr, main.get(), &text), &text), HasSubstr("parameters"));
    EXPECT_THAT(Text(weft_plan(nullptr, main.get(), &text), &text), HasSubstr("bytes"));
    EXPECT_THAT(
        Text(weft_view(nullptr, main.get(), startup.get(), main.get(), startup.get(), &text),
             &text),
        HasSubstr("<html"));
    EXPECT_EQ(weft_transpiled_count(
                  Transpile({{"mode", "grad_allreduce"}}, main.get(), startup.get()).get()),
              1u);
    const weft_program* const mains[] = {main.get(), main.get()};
    const weft_program* const startups[] = {startup.get(), startup.get()};
    for (const size_t count : {1u, 2u}) {
      const Options options = With("verify", {{"nranks", count == 1 ? "1" : "2"}});
      weft_report* report = nullptr;
      ASSERT_EQ(Message(weft_verify(options.get(), mains, count, startups, count, main.get(),
                                    startup.get(), nullptr, &report)),
                "");
      const Report owner(report);
      EXPECT_EQ(weft_report_ok(report) != 0, count == 1);  // two would train apart
      if (count == 2) continue;
      EXPECT_THAT(weft_report_text(report), HasSubstr("equivalence"));
    }
    weft_run* run = nullptr;
    EXPECT_EQ(Message(weft_run_new(nullptr, main.get(), startup.get(), nullptr, nullptr, 0, &run)),
              "");
    const RunHandle owner(run);
  }
}

TEST_F(CTest, AProgramThatIsNoStepHasNoArchive) {
  weft_text* archive = nullptr;
  EXPECT_EQ(Text(weft_program_archive(main_.get(), &archive), &archive), "");
  weft_program* result = nullptr;
  EXPECT_THAT(Message(weft_program_with_archive(main_.get(), "PK", 2, &result)),
              HasSubstr("fit_a_line/main.pb: "));
  EXPECT_EQ(result, nullptr);
}

TEST_F(CTest, MessagesKeepFlagsOfShells) {
  const Options options = With("verify", {{"nranks", "2"}});
  const weft_program* const mains[] = {main_.get()};
  weft_report* report = nullptr;
  ASSERT_EQ(
      Message(weft_verify(options.get(), mains, 1, nullptr, 0, nullptr, nullptr, nullptr, &report)),
      "");
  const Report owner(report);
  EXPECT_THAT(weft_report_text(report), HasSubstr("see weft verify --explain W310"));
  for (const auto& [name, value] : {std::make_pair("op_times", "x"), {"rank", "all"}}) {
    EXPECT_THAT(TranspileError({{"mode", "grad_allreduce"}, {name, value}}),
                ::testing::AllOf(HasSubstr("option "), ::testing::Not(HasSubstr("--"))));
  }
}

TEST_F(CTest, MessagesHaveTheNamesOfPrograms) {
  const Result result = Transpile({{"mode", "grad_allreduce"}}, main_.get(), startup_.get());
  const ProgramHandle done(weft_transpiled_main(result.get(), 0));
  weft_text* text = nullptr;
  const std::string bytes =
      Text(weft_program_serialize(done.get(), WEFT_FORMAT_BINARY, &text), &text);
  for (const auto& [name, said] : {std::make_pair("--mine", "--mine: "), {"", "program: "}}) {
    weft_program* program = nullptr;
    ASSERT_EQ(
        Message(weft_program_parse(bytes.data(), bytes.size(), WEFT_FORMAT_BINARY, name, &program)),
        "");
    const ProgramHandle owner(program);
    EXPECT_THAT(Message(weft_plan(nullptr, program, &text)), StartsWith(said));
  }
}

// --- Runs
// -----------------------------------------------------------------------------------------

class RunTest : public CTest {
 protected:
  RunHandle New(const std::vector<std::pair<const char*, const char*>>& values,
                const weft_program* main = nullptr, const weft_program* startup = nullptr) {
    weft_run* run = nullptr;
    EXPECT_EQ(Message(weft_run_new(With("run", values).get(), main != nullptr ? main : main_.get(),
                                   startup != nullptr ? startup : startup_.get(), nullptr, nullptr,
                                   0, &run)),
              "");
    return RunHandle(run);
  }

  // Of so many rows, different in every step.
  std::string Step(const RunHandle& run, int rows = 4) {
    const auto step = static_cast<float>(weft_run_next_step(run.get()));
    std::vector<float> x(rows * 13), y(rows);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) + step);
    for (size_t i = 0; i < y.size(); ++i) y[i] = std::cos(static_cast<float>(i) + step);
    return StepWith(run, x, y);
  }
  static std::string StepWith(const RunHandle& run, const std::vector<float>& x,
                              const std::vector<float>& y) {
    const int64_t x_dims[] = {static_cast<int64_t>(y.size()), 13};
    const int64_t y_dims[] = {static_cast<int64_t>(y.size()), 1};
    const char* const names[] = {"x", "y"};
    const weft_array batch[] = {{WEFT_FLOAT32, 2, x_dims, x.data()},
                                {WEFT_FLOAT32, 2, y_dims, y.data()}};
    return Message(weft_run_step(run.get(), names, batch, 2));
  }

  static std::vector<std::vector<float>> State(const RunHandle& run) {
    weft_arrays* arrays = nullptr;
    EXPECT_EQ(Message(weft_run_state(run.get(), &arrays)), "");
    const Arrays owner(arrays);
    std::vector<std::vector<float>> values;
    for (size_t i = 0; i < weft_arrays_count(arrays); ++i) {
      const weft_array array = weft_arrays_get(arrays, i);
      int64_t size = 1;
      for (int d = 0; d < array.num_dims; ++d) size *= array.dims[d];
      const auto* const data = static_cast<const float*>(array.data);
      values.emplace_back(data, data + size);
    }
    return values;
  }
};

TEST_F(RunTest, AResumedRunGoesOnWithTheSameBits) {
  const std::string path = ::testing::TempDir() + "c.weft";
  const RunHandle whole = New({});
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(whole), "");
  ASSERT_EQ(Message(weft_run_checkpoint(whole.get(), path.c_str())), "");
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(whole), "");
  const RunHandle rest = New({{"resume", path.c_str()}});
  EXPECT_EQ(weft_run_next_step(rest.get()), 2);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Step(rest), "");
  EXPECT_EQ(weft_run_next_step(rest.get()), 4);
  EXPECT_EQ(State(rest), State(whole));
  EXPECT_EQ(weft_run_fetched_number(rest.get(), 0), weft_run_fetched_number(whole.get(), 0));
}

TEST_F(RunTest, RanksShareTheBatch) {
  const Result result = Transpile({{"mode", "grad_allreduce"}}, main_.get(), startup_.get());
  const ProgramHandle main(weft_transpiled_main(result.get(), 0));
  const ProgramHandle startup(weft_transpiled_startup(result.get(), 0));
  const RunHandle one = New({}), two = New({{"ranks", "2"}}, main.get(), startup.get());
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Step(one), "");
    ASSERT_EQ(Step(two), "");
    EXPECT_NEAR(weft_run_fetched_number(one.get(), 0), weft_run_fetched_number(two.get(), 0), 1e-5);
  }
  EXPECT_EQ(weft_run_num_ranks(two.get()), 2);
  ASSERT_EQ(weft_run_num_fetched(two.get()), 1u);
  const weft_array of_rank1 = weft_run_fetched(two.get(), 0, 1);
  EXPECT_EQ(of_rank1.dtype, WEFT_FLOAT32);
  weft_arrays* arrays = nullptr;
  ASSERT_EQ(Message(weft_run_take_fetched(two.get(), &arrays)), "");
  const Arrays owner(arrays);
  EXPECT_EQ(weft_arrays_count(arrays), 2u);  // ranks
}

TEST_F(RunTest, StateIsThereBeforeTheFirstStepAndDoesNotChangeIt) {
  const RunHandle run = New({}), other = New({});
  const auto before = State(run);
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(State(run), before);
  ASSERT_EQ(Step(run), "");
  ASSERT_EQ(Step(other), "");
  EXPECT_EQ(State(run), State(other));
  EXPECT_NE(State(run), before);
}

TEST_F(RunTest, StateIsSetBetweenSteps) {
  const RunHandle run = New({});
  const auto before = State(run);
  const std::vector<float> w(13, 0.5f), short_w(12, 0.5f);
  const int64_t dims[] = {13, 1}, short_dims[] = {12, 1};
  const char* name = "fc_0.w_0";
  ASSERT_EQ(Step(run), "");
  const weft_array array = {WEFT_FLOAT32, 2, dims, w.data()};
  ASSERT_EQ(Message(weft_run_set_state(run.get(), &name, &array, 1)), "");
  EXPECT_THAT(State(run), ::testing::Contains(w));
  EXPECT_EQ(weft_run_next_step(run.get()), 1);
  const weft_array wrong = {WEFT_FLOAT32, 2, short_dims, short_w.data()};
  EXPECT_THAT(Message(weft_run_set_state(run.get(), &name, &wrong, 1)), HasSubstr("fc_0.w_0"));
  const char* other = "other";
  EXPECT_THAT(Message(weft_run_set_state(run.get(), &other, &array, 1)), HasSubstr("other"));
  EXPECT_THAT(State(run), ::testing::Contains(w));  // as it was
  EXPECT_EQ(Step(run), "");
}

TEST_F(RunTest, ATestProgramIsEvaluatedAgainAndAgain) {
  constexpr char kTest[] = R"(program {
    block 0 parent=-1 {
      var fc_0.w_0 : fp32[13, 1] parameter persistable
      var x : fp32[-1, 13] need_check_feed
      var product : fp32[-1, 1]
      var loss : fp32[]
      Out=[product] = mul(X=[x], Y=[fc_0.w_0]) role=forward
      Out=[loss] = reduce_mean(X=[product]) role=loss {dim=ints[], reduce_all=true}
    }
  })";
  weft_program* program = nullptr;
  ASSERT_EQ(Message(weft_program_parse(kTest, sizeof(kTest) - 1, WEFT_FORMAT_PROGRAM_TEXT, "test",
                                       &program)),
            "");
  const ProgramHandle test(program);
  std::vector<float> w(13, 0.5f);
  const int64_t dims[] = {13, 1};
  const char* names[] = {"fc_0.w_0", "moment"};  // of which only training knows one
  const weft_array params[] = {{WEFT_FLOAT32, 2, dims, w.data()},
                               {WEFT_FLOAT32, 2, dims, w.data()}};
  weft_run* made = nullptr;
  ASSERT_EQ(Message(weft_evaluation_new(nullptr, test.get(), nullptr, names, params, 2, &made)),
            "");
  const RunHandle run(made);
  weft_text* text = nullptr;
  EXPECT_THAT(Message(weft_evaluation_totals(run.get(), &text)), HasSubstr("expected a batch"));
  ASSERT_EQ(Step(run), "");  // without y
  EXPECT_THAT(Text(weft_evaluation_totals(run.get(), &text), &text),
              HasSubstr("\"metrics\":{\"loss\":"));
  std::fill(w.begin(), w.end(), 0.0f);
  ASSERT_EQ(Message(weft_evaluation_restart(run.get(), names, params, 2)), "");
  ASSERT_EQ(Step(run), "");
  EXPECT_THAT(Text(weft_evaluation_totals(run.get(), &text), &text), HasSubstr("{\"batches\":1,"));
  EXPECT_THAT(Text(weft_evaluation_totals(run.get(), &text), &text),
              HasSubstr("\"metrics\":{\"loss\":0.0}"));
  const RunHandle trains = New({});
  EXPECT_THAT(Message(weft_evaluation_totals(trains.get(), &text)), HasSubstr("one that trains"));
  EXPECT_THAT(
      Message(weft_evaluation_new(nullptr, test.get(), nullptr, names + 1, params, 1, &made)),
      HasSubstr("the first is moment"));
}

TEST_F(RunTest, ParametersComeFromArrays) {
  const std::vector<float> w(13, 0.5f), b(1, 0.25f);
  const int64_t w_dims[] = {13, 1}, b_dims[] = {1};
  const char* const names[] = {"fc_0.w_0", "fc_0.b_0"};
  const weft_array params[] = {{WEFT_FLOAT32, 2, w_dims, w.data()},
                               {WEFT_FLOAT32, 1, b_dims, b.data()}};
  weft_run* made = nullptr;
  ASSERT_EQ(Message(weft_run_new(nullptr, main_.get(), startup_.get(), names, params, 2, &made)),
            "");
  const RunHandle run(made);
  EXPECT_THAT(State(run), ::testing::Contains(w));
  const weft_array wrong[] = {{WEFT_FLOAT32, 1, b_dims, b.data()},
                              {WEFT_FLOAT32, 1, b_dims, b.data()}};
  ASSERT_EQ(Message(weft_run_new(nullptr, main_.get(), startup_.get(), names, wrong, 2, &made)),
            "");
  const RunHandle other(made);
  EXPECT_THAT(Step(other), HasSubstr("fc_0.w_0"));
}

TEST_F(RunTest, AnErrorEndsTheRunAndStays) {
  const RunHandle run = New({});
  ASSERT_EQ(Step(run), "");
  const std::vector<float> x(13, 1.0f), y(1, std::numeric_limits<float>::infinity());
  const std::string error = StepWith(run, x, y);
  EXPECT_THAT(error, HasSubstr("step 1, rank 0: loss "));
  EXPECT_EQ(Step(run), error);
  weft_arrays* arrays = nullptr;
  EXPECT_EQ(Message(weft_run_state(run.get(), &arrays)), error);
  EXPECT_EQ(Message(weft_run_end(run.get())), error);
}

TEST_F(RunTest, BatchesAreCompared) {
  const RunHandle run = New({});
  ASSERT_EQ(Step(run), "");
  const int64_t dims[] = {4, 13};
  const std::vector<float> x(4 * 13);
  const char* const names[] = {"x"};
  const weft_array batch[] = {{WEFT_FLOAT32, 2, dims, x.data()}};
  EXPECT_EQ(Message(weft_run_step(run.get(), names, batch, 1)),
            "step 1: expected a batch of x, y, as in the first step, found x");
  EXPECT_EQ(Step(run), "");  // which is no error of the run
  const weft_array wrong[] = {{WEFT_FLOAT64, 2, dims, x.data()}, {WEFT_FLOAT32, 2, dims, x.data()}};
  const char* const both[] = {"x", "y"};
  EXPECT_THAT(Message(weft_run_step(run.get(), both, wrong, 2)),
              HasSubstr("step 2: feed x: expected fp32[-1, 13], found fp64[4, 13]"));
}

TEST_F(RunTest, WrongArraysAreErrors) {
  const int64_t dims[] = {4, 13}, negative[] = {4, -13}, huge[] = {int64_t{1} << 62, 13};
  const std::vector<float> x(4 * 13);
  const struct {
    weft_array array;
    const char* error;
  } cases[] = {
      {{WEFT_FLOAT32, 2, dims, nullptr}, "x: expected data of dimensions [4, 13], found NULL"},
      {{WEFT_FLOAT32, -1, dims, x.data()}, "x: expected 0 to 64 dimensions, found -1"},
      {{WEFT_FLOAT32, 1 << 30, dims, x.data()}, "x: expected 0 to 64 dimensions, found 1073741824"},
      {{WEFT_FLOAT32, 2, nullptr, x.data()}, "x: expected 2 dimensions, found NULL"},
      {{WEFT_FLOAT32, 2, negative, x.data()},
       "x: expected dimensions of 0 or more, found [4, -13]"},
      {{WEFT_FLOAT32, 2, huge, x.data()},
       "x: expected an array in memory, found dimensions [4611686018427387904, 13]"},
      {{static_cast<weft_dtype>(7), 2, dims, x.data()},
       "x: expected an element type, found number 7"},
  };
  const char* const names[] = {"x"};
  const RunHandle run = New({});
  for (const auto& wrong : cases) {
    EXPECT_EQ(Message(weft_run_step(run.get(), names, &wrong.array, 1)), wrong.error);
    weft_run* made = nullptr;
    EXPECT_EQ(
        Message(weft_run_new(nullptr, main_.get(), startup_.get(), names, &wrong.array, 1, &made)),
        wrong.error);
  }
  EXPECT_EQ(Step(run), "");  // these are no errors of the run
}

TEST_F(RunTest, AnArrayWithoutElementsNeedsNoData) {
  const RunHandle run = New({});
  const int64_t x_dims[] = {0, 13}, y_dims[] = {0, 1};
  const char* const names[] = {"x", "y"};
  const weft_array batch[] = {{WEFT_FLOAT32, 2, x_dims, nullptr},
                              {WEFT_FLOAT32, 2, y_dims, nullptr}};
  EXPECT_THAT(Message(weft_run_step(run.get(), names, batch, 2)),
              HasSubstr("found fp32[0, 13], which has no elements"));
}

TEST_F(RunTest, AStepThatHasFailedHasNoResults) {
  const RunHandle run = New({});
  EXPECT_EQ(weft_run_num_fetched(run.get()), 0u);
  ASSERT_EQ(Step(run), "");
  ASSERT_EQ(weft_run_num_fetched(run.get()), 1u);
  EXPECT_NE(weft_run_fetched(run.get(), 0, 0).data, nullptr);
  for (const auto& [index, rank] : {std::make_pair(0, -1), {0, 1}, {1, 0}}) {
    EXPECT_EQ(weft_run_fetched(run.get(), index, rank).data, nullptr);
  }
  ASSERT_NE(StepWith(run, std::vector<float>(13), {std::numeric_limits<float>::infinity()}), "");
  EXPECT_EQ(weft_run_num_fetched(run.get()), 0u);
  EXPECT_TRUE(std::isnan(weft_run_fetched_number(run.get(), 0)));
  EXPECT_EQ(weft_run_fetched(run.get(), 0, 0).data, nullptr);
  weft_arrays* arrays = nullptr;
  ASSERT_EQ(Message(weft_run_take_fetched(run.get(), &arrays)), "");
  const Arrays owner(arrays);
  EXPECT_EQ(weft_arrays_count(arrays), 0u);
  EXPECT_EQ(weft_arrays_name(arrays, 0), nullptr);
  EXPECT_EQ(weft_arrays_get(arrays, 0).data, nullptr);
  EXPECT_EQ(weft_run_fetched_name(run.get(), 1), nullptr);
}

TEST_F(RunTest, ARunThatEndsBeforeItBeginsHasEnded) {
  const RunHandle run = New({});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Message(weft_run_end(run.get())), "");
  weft_arrays* arrays = nullptr;
  EXPECT_EQ(Message(weft_run_state(run.get(), &arrays)), "the run has ended");
  EXPECT_EQ(Step(run), "the run has ended");
}

TEST_F(RunTest, AThreadThatCannotStartIsAnErrorOfTheCall) {
  const RunHandle run = New({}), other = New({});
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  weft_arrays* arrays = nullptr;
  const std::string error = Message(weft_run_state(run.get(), &arrays));
  const std::string of_other = Message(weft_run_state(other.get(), &arrays));
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_THAT(error, StartsWith("cannot start a thread: "));
  EXPECT_EQ(of_other, error);
  EXPECT_EQ(Message(weft_run_end(other.get())), "");
  EXPECT_EQ(Step(run), "");
}

TEST_F(RunTest, AMissingVariableIsAnErrorBeforeTheFirstStep) {
  const RunHandle run = New({});
  const int64_t dims[] = {4, 13};
  const std::vector<float> x(4 * 13);
  const char* const names[] = {"x"};
  const weft_array batch[] = {{WEFT_FLOAT32, 2, dims, x.data()}};
  EXPECT_THAT(Message(weft_run_step(run.get(), names, batch, 1)), HasSubstr("y"));
}

TEST_F(RunTest, AWrongProgramDoesNotRun) {
  const Result result =
      Transpile({{"mode", "grad_allreduce"}, {"verify", "false"}}, main_.get(), startup_.get());
  const ProgramHandle main(weft_transpiled_main(result.get(), 0));
  weft_text* text = nullptr;
  std::string bytes =
      Text(weft_program_serialize(main.get(), WEFT_FORMAT_PROGRAM_TEXT, &text), &text);
  const std::string gradient = "Grad=[fc_0.w_0@GRAD]";
  const size_t update = bytes.find(gradient);
  ASSERT_NE(update, bytes.npos);
  bytes.replace(update, gradient.size(), "Grad=[nobody]");
  weft_program* wrong = nullptr;
  ASSERT_EQ(Message(weft_program_parse(bytes.data(), bytes.size(), WEFT_FORMAT_PROGRAM_TEXT,
                                       "mine.prog", &wrong)),
            "");
  const ProgramHandle owner(wrong);
  weft_run* run = nullptr;
  const std::string error =
      Message(weft_run_new(With("run", {{"ranks", "2"}, {"order", "streams"}}).get(), wrong,
                           startup_.get(), nullptr, nullptr, 0, &run));
  EXPECT_THAT(error, StartsWith("mine.prog: W1"));
}

TEST_F(RunTest, MessagesAreTakenOnce) {
  const RunHandle run = New({{"ranks", "2"}, {"allow_unsynchronized", "true"}});
  ASSERT_EQ(Step(run), "");
  const weft_message* messages = nullptr;
  const size_t count = weft_run_take_messages(run.get(), &messages);
  for (size_t i = 0; i < count; ++i) EXPECT_STRNE(messages[i].text, "");
  EXPECT_EQ(weft_run_take_messages(run.get(), &messages), 0u);
}

// A child that ends with 0 if the check holds.
template <typename Check>
bool HoldsInAChild(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST_F(RunTest, AForkAfterARunHasBegunIsAnErrorThatSaysSo) {
  RunHandle run = New({});
  ASSERT_EQ(Step(run), "");
  EXPECT_TRUE(HoldsInAChild([&] {
    const std::string error = Step(run);
    return error.find("was forked from process") != std::string::npos;
  }));
  EXPECT_TRUE(HoldsInAChild([&] {
    weft_run* other = nullptr;
    if (!Message(weft_run_new(nullptr, main_.get(), startup_.get(), nullptr, nullptr, 0, &other))
             .empty()) {
      return false;
    }
    const RunHandle owner(other);
    return Step(owner).find("was forked from process") != std::string::npos;
  }));
  EXPECT_TRUE(HoldsInAChild([&] {
    run.reset();  // does not wait for threads that are not there
    return true;
  }));
  EXPECT_EQ(Step(run), "");
}

TEST_F(RunTest, SavedFilesAreThoseOfTheFormat) {
  const RunHandle run = New({});
  ASSERT_EQ(Step(run), "");
  const std::string path = ::testing::TempDir() + "saved.npz";
  ASSERT_EQ(Message(weft_run_save(run.get(), path.c_str())), "");
  const RunHandle again = New({{"params", path.c_str()}});
  EXPECT_EQ(State(again), State(run));
  EXPECT_THAT(Message(weft_run_save(run.get(), "/nonexistent/a.npz")),
              HasSubstr("/nonexistent/a.npz"));
}

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(weft_c_version(), WEFT_C_VERSION);
  EXPECT_THAT(weft_version(), ::testing::ContainsRegex("^[0-9]+[.][0-9]+"));
}

TEST(Handles, NoneIsFreed) {
  weft_status_free(nullptr);
  weft_text_free(nullptr);
  weft_options_free(nullptr);
  weft_program_free(nullptr);
  weft_transpiled_free(nullptr);
  weft_report_free(nullptr);
  weft_arrays_free(nullptr);
  weft_run_free(nullptr);
  EXPECT_STREQ(weft_status_message(nullptr), "");
}

}  // namespace
}  // namespace weft
