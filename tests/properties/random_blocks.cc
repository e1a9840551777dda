#include "tests/properties/random_blocks.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::testing {
namespace {

using Kind = RandomValue::Kind;

// Takes one number after the other from a choice.
class Digits {
 public:
  explicit Digits(int choice) : rest_(choice) {}
  int Next(int count) { return std::exchange(rest_, rest_ / count) % count; }

 private:
  int rest_;
};

// A block, and what it reads and writes of the root block.
struct Block {
  std::vector<ForwardOp> ops;
  std::vector<int> reads, writes;
};

// What decides how often a block runs: any value, or one, so that it runs on all ranks alike.
int Decider(const OpChoice& choice, Digits* digits, ValuePool* pool) {
  if (digits->Next(2) == 0) return pool->Pick(ArgumentClass::kFloat, choice.arguments, 1);
  return pool->Make("fill_constant", {},
                    {{"shape", std::vector<int64_t>{1}}, {"dtype", 6}, {"value", 1.0f}});
}

// The variable that a block changes: of x itself, or a new one with its value.
int VariableOf(int x, bool is_in_place, ValuePool* pool) {
  const RandomValue& value = (*pool)[x];
  if (!is_in_place || (value.kind != Kind::kMade && value.kind != Kind::kFeed)) {
    return pool->Variable(x);
  }
  const int changed = pool->Add({value.name, value.types});
  pool->Withdraw(x);
  return changed;
}

// A state that the block changes, of its own or of the root block, and multiplies `out` with,
// before that or after it. Or none.
void AddState(int x, int out, Digits* digits, ValuePool* pool, Block* block) {
  const char* const names[] = {"", "inner", "kept", "scalar"};
  const std::string name = names[digits->Next(4)];
  const int change = digits->Next(4);
  const bool reads_first = digits->Next(2) > 0;
  if (name.empty()) return;
  const int state = pool->Find(name);
  const auto add = [&](const std::string& type, std::vector<int> xs, AttrValues attrs) {
    block->ops.push_back({type, {{"X", std::move(xs)}}, {{"Out", {state}}}, std::move(attrs)});
  };
  const auto read = [&] {
    if ((*pool)[out].types[kDeclared].dims.empty()) return;  // it would get a dimension
    block->ops.push_back(
        {"elementwise_mul", {{"X", {out}}, {"Y", {state}}}, {{"Out", {out}}}, {{"axis", -1}}});
  };
  if (reads_first) read();
  if (change < 2) {
    const int mean =
        pool->MakeInBlock("reduce_mean", {{"X", {x}}},
                          {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}}, &block->ops);
    const int vector = pool->MakeInBlock("reshape", {{"X", {mean}}},
                                         {{"shape", std::vector<int32_t>{1}}}, &block->ops);
    if (change == 0) add("sum", {state, vector}, {});
    if (change == 1) add("assign", {vector}, {});
  } else if (change == 2) {
    add("increment", {state}, {{"step", 1.0f}});
  } else {
    add("scale", {state}, {{"scale", 0.5f}});
  }
  if (!reads_first) read();
  if ((*pool)[state].kind == Kind::kInner) return;
  block->reads.push_back(state);
  block->writes.push_back(state);
}

// A fetch op at the end of the block. The copy has zeros if the block does not run.
void AddFetch(int out, Digits* digits, ValuePool* pool, Block* block) {
  if (digits->Next(3) > 0) return;
  const int zeros = pool->Make("fill_zeros_like", {{"X", {out}}});
  pool->Withdraw(zeros);
  const int copy = pool->Add({(*pool)[zeros].name, (*pool)[zeros].types});
  block->ops.push_back({"assign", {{"X", {out}}}, {{"Out", {copy}}}, {}});
  block->ops.push_back({kFetch, {{"X", {out}}}, {{"Out", {copy}}}, {}});
  block->reads.push_back(copy);
  block->writes.push_back(copy);
}

}  // namespace

void DrawBranch(const OpChoice& choice, ValuePool* pool) {
  Digits digits(choice.attrs);
  const int x = pool->Pick(ArgumentClass::kFloat, choice.arguments, 0);
  const int of = Decider(choice, &digits, pool);
  const int other = pool->Pick(ArgumentClass::kFloat, choice.arguments, 2);
  const int condition = pool->Make(
      "greater_than",
      {{"X", {pool->AsVector1(pool->Scalar(of, "reduce_max"))}}, {"Y", {pool->Find("half.old")}}});
  const int out = VariableOf(x, digits.Next(3) == 2, pool);
  Block block;
  block.reads = {x};
  block.writes = {out};
  if (other != x && (*pool)[other].types == (*pool)[x].types) {
    block.ops.push_back({"assign", {{"X", {other}}}, {{"Out", {out}}}, {}});
    block.reads.push_back(other);
  } else {
    block.ops.push_back({"scale", {{"X", {x}}}, {{"Out", {out}}}, {{"scale", 2.0f}}});
  }
  AddState(x, out, &digits, pool, &block);
  AddFetch(out, &digits, pool, &block);
  pool->Append({"conditional_block",
                {{"Cond", {condition}}, {"Input", block.reads}},
                {{"Out", block.writes}},
                {{"is_scalar_condition", true}},
                std::move(block.ops)});
  pool->Offer(out);
}

void DrawLoop(const OpChoice& choice, ValuePool* pool) {
  Digits digits(choice.attrs);
  const int x = pool->Pick(ArgumentClass::kFloat, choice.arguments, 0);
  const int of = Decider(choice, &digits, pool);
  const int four = pool->Make("scale", {{"X", {pool->AsVector1(pool->Scalar(of, "reduce_sum"))}}},
                              {{"scale", 4.0f}});
  const int limit = pool->Make("clip", {{"X", {four}}}, {{"min", 0.0f}, {"max", 3.0f}});
  const int zero =
      pool->Make("fill_constant", {}, {{"shape", std::vector<int64_t>{1}}, {"dtype", 6}});
  const int i = pool->Variable(zero), total = VariableOf(x, digits.Next(3) == 2, pool);
  const int condition = pool->Make("less_than", {{"X", {i}}, {"Y", {limit}}});
  Block block;
  block.reads = {x, limit, i, total};
  block.writes = {i, total, condition};
  block.ops.push_back({"sum", {{"X", {total, x}}}, {{"Out", {total}}}, {}});
  AddState(x, total, &digits, pool, &block);
  AddFetch(total, &digits, pool, &block);
  block.ops.push_back({"increment", {{"X", {i}}}, {{"Out", {i}}}, {{"step", 1.0f}}});
  block.ops.push_back({"less_than", {{"X", {i}}, {"Y", {limit}}}, {{"Out", {condition}}}, {}});
  pool->Append({"while",
                {{"X", block.reads}, {"Condition", {condition}}},
                {{"Out", block.writes}},
                {},
                std::move(block.ops)});
  pool->Offer(i);
  pool->Offer(total);
}

}  // namespace weft::testing
