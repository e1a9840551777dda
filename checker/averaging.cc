// Averaging of parameters: new ops that change states when a step of the original has ended. What
// they compute is kept as formulas, which must be those of the setting.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "checker/json.h"
#include "checker/state.h"

namespace checker {
namespace {

constexpr int kBool = 0, kInt64 = 3, kFloats = -1;  // element types; kFloats: any of floats

// Formulas: a name, a number, name(formula), number*formula, or two in parentheses.
std::string Pair(const std::string& a, std::string_view symbol, const std::string& b) {
  return Text("(", a, " ", symbol, " ", b, ")");
}
std::string Of(std::string_view name, const std::string& formula) {
  return formula[0] == '(' ? Text(name, formula) : Text(name, "(", formula, ")");
}
std::string Times(float factor, const std::string& formula) {
  Expect(std::isfinite(factor), "a factor is no number");
  if (factor == 1) return formula;
  char text[32] = "";
  for (int digits = 1; digits <= 9; ++digits) {  // the shortest that reads back
    std::snprintf(text, sizeof(text), "%.*g", digits, static_cast<double>(factor));
    if (static_cast<float>(std::strtod(text, nullptr)) == factor) break;
  }
  return Text(text, "*", formula);
}
std::string_view NameOfType(int dtype) {
  return dtype == 4 ? "fp16" : dtype == 5 ? "fp32" : dtype == 6 ? "fp64" : "bf16";
}

// Conditions "((s mod 4) = 1)" and "((s mod 4) = 2)".
bool ExcludeEachOther(const std::string& a, const std::string& b) {
  const size_t end = a.find(" = ") + 3;
  const auto is_one = [&](const std::string& text) {
    return text.compare(0, 8, "((s mod ") == 0 &&
           text.find_first_not_of("0123456789", end) == text.size() - 1;
  };
  return a != b && end > 3 && is_one(a) && is_one(b) && a.compare(0, end, b, 0, end) == 0;
}

// A state that other branches change has one value if it is this branch, or another one, that runs.
void ExpectNotChanged(Var* var, State* state) {
  const std::vector<size_t>& earlier = state->changed_by[var];
  Expect(earlier.size() <= 8, var->name, " is changed by too many blocks");
  for (const size_t i : earlier) {
    Expect(ExcludeEachOther(state->branches[i].condition, state->condition), var->name,
           " may have been changed by an earlier block");
  }
}

std::string ValueOf(Var* var, State* state) {
  const auto found = state->values.find(var);
  if (found != state->values.end()) {
    Expect(!found->second.empty(), var->name, " holds nothing");
    return found->second;
  }
  const bool is_there = var->of == var ? var->kind == kSame && state->HasValue(*var)
                                       : var->of == nullptr && var->IsState();
  Expect(is_there && var->type == 7, var->name, " has no value, or is no dense tensor");
  // No name may look like another formula.
  Expect(var->name.find_first_of(" ()*") == var->name.npos && var->name != "s" &&
             var->name != "n" && var->name.find_first_of("0123456789.-+") != 0,
         var->name, " has a name that formulas cannot have");
  ExpectNotChanged(var, state);
  return std::string(var->name);
}

void SetValue(Var* var, const std::string& value, bool is_equal, State* state) {
  Expect(var->type == 7 && (var->persistable || (var->of == nullptr && var->block == state->block)),
         var->name, " is not to be written");
  Expect(value.size() <= 4096, "its formula is too long");
  if (var->IsState() && state->changed.emplace(var, var->equal).second) {
    ExpectNotChanged(var, state);
  }
  state->Spend(1 + value.size() / 8);
  state->values[var] = value;
  var->equal = is_equal;
}

void EndBranch(const std::string& condition, State* state) {
  Branch branch{condition, {}};
  for (const auto& [var, was_equal] : state->changed) {
    branch.values[var] = state->values.at(var);
    state->changed_by[var].push_back(state->branches.size());
    if (var->of == var && var->equal) state->synchronized.emplace(var->name);
    if (!condition.empty()) var->equal = var->equal && was_equal;  // the branch may not run
    state->values.erase(var);
  }
  state->changed.clear();
  state->branches.push_back(std::move(branch));
}

// Types of ops of two inputs.
struct Binary {
  std::string_view type, symbol;
  int in, out;
};
constexpr Binary kBinary[] = {
    {"elementwise_add", "+", kFloats, kFloats}, {"elementwise_sub", "-", kFloats, kFloats},
    {"elementwise_mul", "*", kFloats, kFloats}, {"elementwise_div", "/", kFloats, kFloats},
    {"elementwise_mod", "mod", kInt64, kInt64}, {"equal", "=", kInt64, kBool},
    {"less_than", "<", kInt64, kBool},          {"greater_equal", ">=", kInt64, kBool},
    {"logical_and", "and", kBool, kBool},       {"logical_or", "or", kBool, kBool},
};

bool HasType(const Var& var, int type) {
  return type == kFloats ? var.FloatSize() > 0 : var.dtype == type && var.elements == 1;
}

void ExpectAligned(const Var& a, const Var& b) {
  bool are = a.Dims() == b.Dims() && a.parts.size() == b.parts.size();
  for (size_t i = 0; are && i < a.parts.size(); ++i) {
    are = a.parts[i].second == b.parts[i].second && a.parts[i].second >= 0 &&
          a.parts[i].first->Dims() == b.parts[i].first->Dims();
  }
  Expect(are, b.name, " has other elements than ", a.name);
}

float FloatOf(const Op& op, std::string_view name) {
  const Attr* const attr = op.Find(name);
  const std::vector<float> values =
      attr == nullptr ? std::vector<float>() : attr->Values(&Fields::Float);
  Expect(values.size() == 1, "expected attribute ", name);
  return values[0];
}

// What fill_constant gives, if it is a whole number: attribute str_value counts before value.
std::string Constant(const Op& op, const Var& out) {
  const Attr* const attr = op.Find("str_value");
  const std::vector<std::string_view> texts =
      attr == nullptr ? std::vector<std::string_view>() : attr->Texts();
  const float value = FloatOf(op, "value");
  const std::string text(texts.empty() || texts[0].empty() ? "0" : texts[0]);
  const uint64_t number = std::strtoull(text.c_str(), nullptr, 10);
  const std::vector<int64_t> dims = out.Dims();
  Expect(text.size() < 18 && std::to_string(number) == text &&
             static_cast<float>(number) == value && op.Number("dtype", -1) == out.dtype &&
             op.Numbers("shape") == std::vector<uint64_t>(dims.begin(), dims.end()),
         "expected a whole number, and attributes as ", out.name, " is declared");
  return text;
}

// --- What the setting says -----------------------------------------------------------------------

struct Schedule {
  uint64_t period = 1, first = 1, begin = 1, fragments = 1, delay = 0;
  bool in_turn = false;
  std::string outer, sent;
  float lr = 1, momentum = 0, mix = 0, rest = 1;
};

double NumberOf(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  Expect(!text.empty() && text.find_first_not_of("0123456789.e+-") == text.npos && *end == '\0',
         "its setting has no number where one belongs: ", text);
  return number;
}

// The values of "averaging", by key.
std::map<std::string, std::string> AveragingOf(std::string_view setting) {
  const size_t at = setting.find("averaging\"");
  Expect(at != setting.npos && setting.find("averaging\"", at + 1) == setting.npos,
         "its setting does not say, or not once, how parameters are averaged");
  const std::string_view averaging = Members(Json::Checked(setting)).Get("averaging");
  if (averaging == "\"in_turn\"") return {{"in_turn", ""}};
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : Members(averaging).all) {
    Expect(key != "in_turn", "its setting: no rule averages by ", key);
    values.emplace(key, value[0] == '"' ? StringOf(value) : value);
  }
  return values;
}

Schedule ScheduleOf(std::string_view setting) {
  std::map<std::string, std::string> values = AveragingOf(setting);
  const auto take = [&](const char* key, const char* absent) {
    const auto found = values.find(key);
    std::string value = found == values.end() ? absent : found->second;
    values.erase(key);
    return value;
  };
  Schedule schedule;
  schedule.in_turn = values.erase("in_turn") > 0;
  for (const auto& [key, number] :
       {std::make_pair("period", &schedule.period), std::make_pair("first_step", &schedule.first),
        std::make_pair("begin_step", &schedule.begin),
        std::make_pair("fragments", &schedule.fragments),
        std::make_pair("delay", &schedule.delay)}) {
    const std::string text = take(key, *number == 1 ? "1" : "0");
    *number = std::strtoull(text.c_str(), nullptr, 10);
    Expect(text.size() < 12 && std::to_string(*number) == text, "its setting: ", key,
           ": expected a number of steps");
  }
  const double mix = NumberOf(take("mix", "0"));
  schedule.mix = static_cast<float>(mix);
  schedule.rest = static_cast<float>(1 - mix);
  schedule.sent = take("sent", "");
  const std::string outer = take("outer", "");
  schedule.outer = outer.substr(0, outer.find('{'));
  const auto option = [&](const char* name) {
    const size_t at = outer.find(name);
    if (at == outer.npos) return std::string();
    const size_t begin = at + std::string_view(name).size();
    return outer.substr(begin, outer.find_first_of(",}", begin) - begin);
  };
  const std::string lr = option("{lr="), momentum = option(",momentum=");
  const bool has_momentum = schedule.outer == "nesterov" || schedule.outer == "slowmo";
  Expect(outer.empty() ||
             (has_momentum ? outer == Text(schedule.outer, "{lr=", lr, ",momentum=", momentum, "}")
                           : outer == Text("sgd{lr=", lr, "}")),
         "its setting: no rule for the outer optimizer ", outer);
  if (!outer.empty()) schedule.lr = static_cast<float>(NumberOf(lr));
  if (has_momentum) schedule.momentum = static_cast<float>(NumberOf(momentum));
  Expect(values.empty(), "its setting: no rule averages by ",
         values.empty() ? "" : values.begin()->first);
  const uint64_t turn = schedule.fragments == 0 ? 0 : schedule.period / schedule.fragments;
  Expect(
      turn * schedule.fragments == schedule.period && schedule.period > 0 &&
          schedule.delay < turn && schedule.mix >= 0 && schedule.mix < 1 &&
          (!outer.empty() || (schedule.delay == 0 && schedule.mix == 0 && schedule.sent.empty())) &&
          (schedule.sent.empty() || schedule.sent == "bf16" || schedule.sent == "fp16"),
      "its setting says what cannot be");
  return schedule;
}

std::string Due(uint64_t period, uint64_t step) {
  return Pair(Pair("s", "mod", std::to_string(period)), "=", std::to_string(step));
}

// When all parameters are averaged; empty: in every step.
std::string ConditionOf(const Schedule& schedule) {
  if (schedule.period == 1 && schedule.first == 1) return "";
  std::string condition = Due(schedule.period, 0);
  const bool begins_apart = schedule.begin > schedule.first;
  if (begins_apart) {
    condition = Pair(condition, "or", Pair("s", "<", std::to_string(schedule.begin)));
  } else if (schedule.first <= schedule.period) {
    return condition;
  }
  if (schedule.first == 1) return condition;
  return Pair(condition, "and", Pair("s", ">=", std::to_string(schedule.first)));
}

using Formulas = std::map<std::string, std::string>;  // of states, by their names

// What a synchronization gives; with `launches`, what is sent before, for a delayed one.
Formulas FormulasOf(const std::string& p, const std::string& rate, const Schedule& of,
                    const std::string& sent_type, bool knows_ranks, bool launches) {
  if (of.outer.empty()) return {{p, Of("mean", p)}};
  const std::string x = p + "_outer_param", v = p + "_outer_velocity", g = p + "_outer_gradient",
                    e = p + "_outer_error";
  const bool divides_first = knows_ranks && (of.delay > 0 || !sent_type.empty());
  std::string sent = divides_first ? Pair(Pair(x, "-", p), "/", "n") : Pair(x, "-", p);
  Formulas formulas;
  if (!sent_type.empty()) {
    const std::string all = Pair(sent, "+", e);
    sent = Of(sent_type, all);
    if (launches || of.delay == 0) formulas[e] = Pair(all, "-", Of("fp32", sent));
  }
  const std::string reduced = Of(divides_first ? "sum" : "mean", sent);
  if (launches) formulas[g] = reduced;
  if (launches) return formulas;
  std::string d = of.delay > 0 ? g : reduced;
  if (!sent_type.empty()) d = Of("fp32", d);
  std::string change = Times(of.lr, d);
  if (of.outer == "nesterov") {
    formulas[v] = Times(of.momentum, Pair(v, "+", d));
    change = Times(of.lr, Pair(d, "+", formulas[v]));
  } else if (of.outer == "slowmo") {
    formulas[v] = Pair(Times(of.momentum, v), "+", Pair(d, "/", rate));
    change = Pair(Times(of.lr, formulas[v]), "*", rate);
  }
  formulas[x] = Pair(x, "-", change);
  formulas[p] =
      of.mix == 0 ? formulas[x] : Pair(Times(of.mix, p), "+", Times(of.rest, formulas[x]));
  return formulas;
}

// Without the parentheses around it.
std::string_view Inside(std::string_view formula) {
  return formula[0] == '(' ? formula.substr(1, formula.size() - 2) : formula;
}

std::string When(const std::string& condition) {
  return condition.empty() ? "always" : Text("if ", Inside(condition));
}

// Compares the branches with what the setting says.
class Comparison {
 public:
  explicit Comparison(State* state) : state_(*state), schedule_(ScheduleOf(state->setting)) {}

  void Run() {
    const std::vector<Branch>& branches = state_.branches;
    Schedule& of = schedule_;
    if (of.in_turn) of.period = of.fragments = branches.size();
    const bool is_plain = of.fragments == 1 && of.delay == 0;
    const size_t per_turn = of.delay > 0 ? 2 : 1;
    Expect(!branches.empty() && branches.size() == of.fragments * per_turn,
           "other blocks change states than the setting says");
    for (uint64_t i = 0; i < of.fragments; ++i) {
      const Branch& branch = branches[i * per_turn];
      const uint64_t phase = (i + 1) * (of.period / of.fragments) % of.period;
      Compare(branch, branch, is_plain ? ConditionOf(of) : Due(of.period, phase), false);
      if (of.delay == 0) continue;
      const uint64_t launch = (phase + of.period - of.delay) % of.period;
      Compare(branches[i * per_turn + 1], branch, Due(of.period, launch), true);
    }
    for (const Var& var : state_.vars) {
      const bool is_new = var.of == nullptr && var.IsState();
      Expect(is_new ? &var == state_.counter || state_.first.count(std::string(var.name)) > 0
                    : !var.is_parameter || done_.count(&var) > 0,
             var.name, is_new ? ", which is new, is no state of averaging" : " is not averaged");
    }
    if (state_.counter != nullptr) state_.first[std::string(state_.counter->name)] = "0";
    for (const auto& [formulas, when] : claimed_)
      state_.changes += Text("  - ", when, ":\n", formulas);
  }

 private:
  // `of`: that synchronizes what `branch` changes, or sends before.
  void Compare(const Branch& branch, const Branch& of, const std::string& condition,
               bool launches) {
    Expect(branch.condition == condition, "states change ", When(branch.condition),
           ", and by the setting ", When(condition));
    size_t expected = 0;
    std::map<std::string, uint64_t> counts;  // of states, by the formulas of p
    for (const auto& [var, value] : of.values) {
      if (var->of != var) continue;
      Schedule schedule = schedule_;
      if (!var->is_parameter) schedule.outer.clear();  // a state that is averaged besides
      if (!var->is_parameter && launches) continue;
      const std::string name(var->name), sent = var->dtype == 5 ? schedule.sent : "";
      const auto formulas_of = [&](const std::string& p, const std::string& rate) {
        return FormulasOf(p, rate, schedule, sent, state_.nranks > 0, launches);
      };
      for (const auto& [changed, formula] : formulas_of(name, RateOf(var, schedule))) {
        Var* const state = state_.VarOf(changed);
        const auto found = branch.values.find(state);
        Expect(found != branch.values.end(), changed, " does not change, and should become ",
               formula);
        Expect(found->second == formula, changed, " becomes ", found->second,
               ", and should become ", formula);
        ++expected;
        if (state == var) continue;
        const bool is_error = changed == name + "_outer_error";
        Expect(state->of == nullptr && (is_error || !state->is_own), changed,
               " is no new state that is equal on all ranks");
        state_.first[changed] = changed == name + "_outer_param" ? name : "0";
      }
      Expect(launches || done_.insert(var).second, name, " is averaged twice");
      const bool mixes = schedule.mix > 0 && !schedule.outer.empty();
      Expect(mixes || launches || state_.synchronized.count(name) > 0, name,
             " is not equal on all ranks");
      std::string lines;
      for (const auto& [changed, formula] : formulas_of("p", "rate")) {
        lines += Text("    ", changed, " = ", Inside(formula), "\n");
      }
      ++counts[lines];
    }
    Expect(expected == branch.values.size(), "a block changes other states than the setting says");
    for (const auto& [lines, count] : counts) {
      std::string& when = claimed_[lines];
      when += Text(when.empty() ? "" : "; ", When(condition), ", of ", std::to_string(count),
                   count == 1 ? " state p" : " states p");
    }
  }

  std::string RateOf(Var* param, const Schedule& schedule) {
    if (schedule.outer != "slowmo") return "";
    const auto found = state_.rates.find(param);
    Expect(found != state_.rates.end(), param->name, " has no learning rate");
    const std::string name(found->second->name);
    return found->second->dtype == param->dtype ? name : Of(NameOfType(param->dtype), name);
  }

  State& state_;
  Schedule schedule_;
  std::set<const Var*> done_;
  std::map<std::string, std::string> claimed_;  // when, by formulas
};

}  // namespace

void Move(Var* var, bool keeps, State* state) {
  keeps ? static_cast<void>(ValueOf(var, state)) : SetValue(var, "", false, state);
}

void Count(const Slots& slots) {
  State& state = slots.state;
  Var& step = One(slots.in);
  Expect(&step == &One(slots.out) && step.of == nullptr && step.IsState() && state.block == 0 &&
             HasType(step, kInt64) && state.counter == nullptr && step.equal &&
             FloatOf(slots.op, "step") == 1,
         "expected a new state that counts steps");
  state.counter = &step;
  state.values[&step] = "s";
}

void Fill(const Slots& slots) {
  Var& out = One(slots.out);
  Expect(!out.persistable && HasType(out, kInt64), "expected a new whole number");
  SetValue(&out, Constant(slots.op, out), true, &slots.state);
}

void Compute(const Slots& slots) {
  const Op& op = slots.op;
  State& state = slots.state;
  Var &x = One(slots.in), &out = One(slots.out);
  Var* const y = slots.also.empty() ? nullptr : &One(slots.also);
  const auto* const binary =
      std::find_if(std::begin(kBinary), std::end(kBinary),
                   [&](const Binary& known) { return known.type == op.type; });
  const bool is_binary = binary != std::end(kBinary), is_cast = op.type == "cast";
  const int in_type = is_binary ? binary->in : kFloats,
            out_type = is_binary ? binary->out : kFloats;
  Expect(is_binary == (y != nullptr) && op.Number("axis", -1) == -1 && HasType(x, in_type) &&
             HasType(out, out_type) && (in_type != kFloats || is_cast || x.dtype == out.dtype),
         "expected inputs and outputs of one type, and no axis");
  Expect(
      !is_cast || (op.Number("in_dtype", -1) == x.dtype && op.Number("out_dtype", -1) == out.dtype),
      "expected attributes with the types of the variables");
  ExpectAligned(x, out);
  const bool is_scalar =
      y != nullptr && y->parts.empty() && y->elements == 1 && y->Dims().size() <= x.Dims().size();
  Expect(y == nullptr || (HasType(*y, in_type) && y->dtype == x.dtype),
         "expected X and Y of one type");
  if (y != nullptr && !is_scalar) ExpectAligned(x, *y);
  const std::vector<Var*> from = PartsOf(&x), to = PartsOf(&out);
  const std::vector<Var*> other = y == nullptr ? from : PartsOf(y);
  for (size_t i = 0; i < to.size(); ++i) {
    Var* const second = is_scalar ? y : other[i];
    const std::string a = ValueOf(from[i], &state);
    std::string value = a;
    if (is_binary) value = Pair(a, binary->symbol, ValueOf(second, &state));
    if (is_cast) value = Of(NameOfType(out.dtype), a);
    if (op.type == "scale") {
      const float factor = FloatOf(op, "scale");
      const bool divides = op.Find("nranks") != nullptr;
      Expect(!divides || (state.nranks > 0 && factor == 1.0F / static_cast<float>(state.nranks)),
             "attribute scale: expected 1 / ranks");
      value = !divides                       ? Times(factor, a)
              : a.compare(0, 4, "sum(") == 0 ? Text("mean", a.substr(3))
                                             : Pair(a, "/", "n");
    }
    SetValue(to[i], value, from[i]->equal && (!is_binary || second->equal), &state);
  }
}

bool Exchange(const Slots& slots) {
  const int64_t reduction = slots.op.Number("reduce_type", 0);
  Expect(reduction == 0 || reduction == 4, "attribute reduce_type: expected 0 or 4");
  const bool averages = slots.op.type == "c_allreduce_avg" || reduction == 4;
  Expect(HasType(One(slots.in), kFloats), "expected floats");
  for (Var* part : PartsOf(&One(slots.in))) {
    SetValue(part, Of(averages ? "mean" : "sum", ValueOf(part, &slots.state)), true, &slots.state);
  }
  return averages;
}

void RunBranch(const Slots& slots) {
  State& state = slots.state;
  Var& run = One(slots.in);
  const auto number = static_cast<uint64_t>(slots.op.Number("sub_block", 0));
  const uint64_t first = state.blocks.size();
  Expect(state.block == 0 && slots.op.Number("is_scalar_condition", 0) == 1 &&
             HasType(run, kBool) && run.equal && number >= first &&
             number - first < state.new_blocks.size() && state.walked.insert(number).second &&
             state.changed.empty(),
         "expected a new block of its own, and a condition that is equal on all ranks");
  state.condition = ValueOf(&run, &state);
  state.Touch(state.Launch(0), &run, false);
  state.reads.insert(slots.also.begin(), slots.also.end());
  state.writes.insert(slots.out.begin(), slots.out.end());
  state.block = number;
  const auto before = state.clocks;
  uint64_t index = 0;
  for (Fields ops(state.new_blocks[number - first].ops); ops.Next(4); ++index) {
    try {
      Insert(Op(ops.Bytes()), &state);
    } catch (const Failure& failure) {
      throw Failure{Text("block ", std::to_string(number), ", op ", std::to_string(index), " (",
                         TextOf(ops.Bytes(), 3), "): ", failure.why)};
    }
  }
  // If the block does not run, nothing has waited in it for what was launched before.
  for (size_t who = 0; who <= kHost; ++who) {
    for (size_t stream = 0; stream <= kHost; ++stream) {
      const uint32_t known = before[who][stream];
      if (known < before[stream][stream]) state.clocks[who][stream] = known;
    }
  }
  for (Fields decls(state.new_blocks[number - first].decls); decls.Next(3);) {
    Var* const var = state.VarOf(TextOf(decls.Bytes(), 1));
    state.values.erase(var);
    if (!var->parts.empty()) var->accesses.clear();  // its memory is that of its parts
    for (const auto& [part, offset] : var->parts) part->in_buffer = false;
    var->parts.clear();
  }
  EndBranch(state.condition, &state);
  state.block = 0;
  state.condition.clear();
  state.reads.clear();
  state.writes.clear();
}

void BeginState(const Slots& slots) {
  State& state = slots.state;
  Var& out = One(slots.out);
  Expect(out.of == nullptr && out.IsState() && !out.has_value, out.name, " is no new state");
  if (slots.in.empty()) {
    state.values[&out] = Constant(slots.op, out);
  } else {
    Var& x = One(slots.in);
    Expect(x.of == &x && x.is_frozen && x.equal && x.Dims() == out.Dims() && x.dtype == out.dtype,
           x.name, " is no state that all ranks have from rank 0");
    state.values[&out] = x.name;
  }
  out.has_value = out.equal = true;
}

void CheckAveraging(State* state) {
  if (state->main != nullptr) {
    for (const auto& [name, value] : state->main->first) {
      Var* const var = state->VarOf(name);
      Expect(var->of == nullptr && state->values[var] == value, name, " does not begin with ",
             value);
    }
    return;
  }
  if (!state->changed.empty()) EndBranch("", state);
  Expect(state->walked.size() == state->new_blocks.size(), "a new block is not used");
  Comparison(state).Run();
}

}  // namespace checker
