// States of which each rank has a part (docs/certificate.md, "Shares").
#ifndef WEFT_CHECKER_SHARES_H_
#define WEFT_CHECKER_SHARES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checker/state.h"

namespace checker {

// What the setting says of shares: reads it into `layout` and `common`.
void ReadShares(State* state);
// What the shares hold when the main program begins, if they are declared as the setting says.
void BeginShares(State* state);

// An op of the original that the result has not. `before`: the values of its arguments.
void LeaveOut(const Op& op, std::vector<Part> before, State* state);
// In startup programs: what an op makes a constant.
void KeepConstant(const Op& op, State* state);

bool UpdatesShares(const Op& op, const State& state);
void UpdateShares(const Op& op, State* state);  // one op for several that are left out

// The variables that a buffer holds, one after the other, before padding. It has `times` as many
// elements as `other`.
std::vector<Var*> PackedVars(const Var& buffer, const Var& other, uint64_t times);
// A variable gets a part of these, which are in the buffer, and of its padding.
void HoldShare(const std::vector<Var*>& vars, const Var& buffer, Kind kind, Var* share,
               State* state);
void DivideShare(Var* share, State* state);
void GatherShare(const Var& share, const Var& buffer, State* state);
// Numbers that ranks add up, each of its part of tensors.
void JoinSums(const Slots& slots);
void AddUp(Var* sum, State* state);
// Whether any rank has an infinite element.
bool IsAny(const Var& var, const State& state);
void FindAny(Var* any, State* state);
void CastAny(const Var& from, Var* to, State* state);
void SendParts(Var* buffer, Var* out, State* state);
void SliceShare(const Slots& slots);
void FillNew(const Slots& slots);

void CheckShares(State* state);                // at the end
std::string SharesOfClaim(const State& main);  // in the claim

}  // namespace checker

#endif  // WEFT_CHECKER_SHARES_H_
