#include "transpiler/verifier/testing/matchers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/all_ops.h"
#include "proto/text/program_text.h"

namespace weft {
namespace {

constexpr size_t kMaxLines = 60;

}  // namespace

void PrintTo(const Program& program, std::ostream* out) {
  const std::string text = ProgramText(program, PrintOptions::Short());
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (size_t i = 0; i < std::min(lines.size(), kMaxLines); ++i) *out << "\n  " << lines[i];
  if (lines.size() > kMaxLines) *out << "\n  (" << lines.size() - kMaxLines << " more lines)";
}

namespace testing {
namespace {

bool MatchesAttr(const pb::OpDesc::Attr& attr, int64_t value) {
  return (attr.type() == pb::INT && attr.i() == value) ||
         (attr.type() == pb::LONG && attr.l() == value);
}

bool MatchesAttr(const pb::OpDesc::Attr& attr, double value) {
  return (attr.type() == pb::FLOAT && attr.f() == static_cast<float>(value)) ||
         (attr.type() == pb::FLOAT64 && attr.float64() == value);
}

bool MatchesAttr(const pb::OpDesc::Attr& attr, bool value) {
  return attr.type() == pb::BOOLEAN && attr.b() == value;
}

bool MatchesAttr(const pb::OpDesc::Attr& attr, const std::string& value) {
  return attr.type() == pb::STRING && attr.s() == value;
}

bool MatchesAttr(const pb::OpDesc::Attr& attr, const std::vector<int64_t>& value) {
  const auto equals = [&](const auto& found) {
    return std::equal(found.begin(), found.end(), value.begin(), value.end());
  };
  return (attr.type() == pb::INTS && equals(attr.ints())) ||
         (attr.type() == pb::LONGS && equals(attr.longs()));
}

std::string ToText(int64_t value) { return absl::StrCat(value); }
std::string ToText(double value) { return absl::StrCat(value); }
std::string ToText(bool value) { return value ? "true" : "false"; }
std::string ToText(const std::string& value) { return absl::StrCat("\"", value, "\""); }
std::string ToText(const std::vector<int64_t>& value) {
  return absl::StrCat("[", absl::StrJoin(value, ", "), "]");
}

// "op 3: Out=[...] = scale(...)", with the block if it is not the root.
std::string PositionAndText(const Program& program, int block, size_t i) {
  PrintOptions options;
  options.attrs = PrintOptions::Attrs::kShort;
  options.callstack = false;
  return absl::StrCat(block == 0 ? "" : absl::StrCat("block ", block, ", "), "op ", i, ": ",
                      OpText(program.op(program.block(block).ops()[i]), options));
}

}  // namespace

// --- What the verifier finds --------------------------------------------------------------------

VerifiesMatcher::VerifiesMatcher(std::string what, VerifyOptions options,
                                 absl::optional<Program> original)
    : what_(std::move(what)), options_(std::move(options)), original_(std::move(original)) {
  options_.original = {};
}

VerifiesMatcher VerifiesMatcher::WithStartup(const Program& startup) const {
  VerifiesMatcher copy = *this;
  copy.startup_ = startup;
  return copy;
}

bool VerifiesMatcher::MatchAndExplain(const Program& program,
                                      ::testing::MatchResultListener* listener) const {
  VerifyOptions options = options_;
  if (original_.has_value()) options.original.main = &*original_;
  const ConstProgramPair programs{&program, startup_.has_value() ? &*startup_ : nullptr};
  const Findings findings = Verify({programs}, options);
  int64_t omitted = 0;
  for (const Rule& rule : Rules()) omitted += findings.NumOmitted(rule.id);
  *listener << (findings.all().empty() ? "in which the verifier finds nothing"
                                       : "in which the verifier finds");
  for (const Finding& finding : findings.all()) *listener << "\n  " << ToString(finding);
  if (omitted > 0) *listener << "\n  and " << omitted << " more";
  return !findings.HasErrors();
}

void VerifiesMatcher::DescribeTo(std::ostream* out) const { *out << what_; }
void VerifiesMatcher::DescribeNegationTo(std::ostream* out) const { *out << "not: " << what_; }

VerifiesMatcher HasNoRaces() {
  VerifyOptions options;
  options.layers = {Layer::kRaces};
  return VerifiesMatcher("has no races", std::move(options));
}

VerifiesMatcher VerifiesFor(int nranks) {
  VerifyOptions options;
  options.setting.nranks = nranks;
  return VerifiesFor(std::move(options));
}

VerifiesMatcher VerifiesFor(VerifyOptions options) {
  std::string what = absl::StrCat(
      "verifies for ",
      options.setting.nranks.has_value() ? absl::StrCat(*options.setting.nranks) : "any number of",
      " ranks");
  return VerifiesMatcher(std::move(what), std::move(options));
}

VerifiesMatcher IsEquivalentTo(const Program& original, VerifyOptions options) {
  options.layers = {Layer::kStructure, Layer::kEquivalence};
  return VerifiesMatcher("computes what the original computes", std::move(options), original);
}

// --- Ops ----------------------------------------------------------------------------------------

HasOpMatcher HasOpMatcher::WithInput(std::string slot, std::string variable) const {
  HasOpMatcher copy = *this;
  copy.arguments_.push_back({true, std::move(slot), std::move(variable)});
  return copy;
}

HasOpMatcher HasOpMatcher::WithOutput(std::string slot, std::string variable) const {
  HasOpMatcher copy = *this;
  copy.arguments_.push_back({false, std::move(slot), std::move(variable)});
  return copy;
}

HasOpMatcher HasOpMatcher::WithValue(std::string name, Value value) const {
  HasOpMatcher copy = *this;
  copy.attrs_.emplace_back(std::move(name), std::move(value));
  return copy;
}

HasOpMatcher HasOpMatcher::WithAttr(std::string name, int value) const {
  return WithValue(std::move(name), int64_t{value});
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, int64_t value) const {
  return WithValue(std::move(name), value);
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, double value) const {
  return WithValue(std::move(name), value);
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, bool value) const {
  return WithValue(std::move(name), value);
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, const char* value) const {
  return WithValue(std::move(name), std::string(value));
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, std::string value) const {
  return WithValue(std::move(name), std::move(value));
}
HasOpMatcher HasOpMatcher::WithAttr(std::string name, std::vector<int64_t> value) const {
  return WithValue(std::move(name), std::move(value));
}

HasOpMatcher HasOpMatcher::WithRole(int role) const {
  HasOpMatcher copy = *this;
  copy.role_ = role;
  return copy;
}

HasOpMatcher HasOpMatcher::InBlock(int block) const {
  HasOpMatcher copy = *this;
  copy.block_ = block;
  return copy;
}

HasOpMatcher HasOpMatcher::Times(int count) const {
  HasOpMatcher copy = *this;
  copy.times_ = count;
  return copy;
}

bool HasOpMatcher::Meets(const Op& op) const {
  if (block_.has_value() && op.block() != *block_) return false;
  if (role_.has_value() && op.role() != *role_) return false;
  for (const Argument& argument : arguments_) {
    const absl::Span<const Symbol> args =
        argument.is_input ? op.Input(argument.slot) : op.Output(argument.slot);
    const auto is_it = [&](Symbol arg) { return op.program().name(arg) == argument.variable; };
    if (std::none_of(args.begin(), args.end(), is_it)) return false;
  }
  for (const auto& [name, value] : attrs_) {
    const absl::optional<pb::OpDesc::Attr> attr = op.FindAttr(name);
    if (!attr.has_value()) return false;
    if (!absl::visit([&](const auto& v) { return MatchesAttr(*attr, v); }, value)) return false;
  }
  return true;
}

std::string HasOpMatcher::Conditions() const {
  std::vector<std::string> conditions;
  for (const Argument& argument : arguments_) {
    conditions.push_back(absl::StrCat(argument.is_input ? "input " : "output ", argument.slot, " ",
                                      argument.variable));
  }
  for (const auto& [name, value] : attrs_) {
    conditions.push_back(
        absl::StrCat(name, " ", absl::visit([](const auto& v) { return ToText(v); }, value)));
  }
  if (role_.has_value()) conditions.push_back(absl::StrCat("role ", *role_));
  return absl::StrCat(conditions.empty() ? "" : " with ", absl::StrJoin(conditions, " and "),
                      block_.has_value() ? absl::StrCat(" in block ", *block_) : "");
}

bool HasOpMatcher::MatchAndExplain(const Program& program,
                                   ::testing::MatchResultListener* listener) const {
  int found = 0;
  std::vector<std::string> of_type;
  for (const Op& op : AllOps(program)) {
    if (op.type() != type_) continue;
    found += Meets(op) ? 1 : 0;
    if (!listener->IsInterested()) continue;
    of_type.push_back(PositionAndText(program, op.block(), op.position()));
  }
  if (of_type.empty()) {
    *listener << "which has no " << type_;
  } else {
    *listener << "which has " << found << " such, of these " << type_ << ":\n  "
              << absl::StrJoin(of_type, "\n  ");
  }
  return times_.has_value() ? found == *times_ : found > 0;
}

void HasOpMatcher::DescribeTo(std::ostream* out) const {
  *out << "has ";
  if (times_.has_value()) *out << *times_ << " times ";
  *out << type_ << Conditions();
}

void HasOpMatcher::DescribeNegationTo(std::ostream* out) const {
  *out << (times_.has_value() ? "has not " : "has no ");
  if (times_.has_value()) *out << *times_ << " times ";
  *out << type_ << Conditions();
}

}  // namespace testing
}  // namespace weft
