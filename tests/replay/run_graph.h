// The order in which the ops of one rank run, as a graph that is searched.
#ifndef WEFT_TESTS_REPLAY_RUN_GRAPH_H_
#define WEFT_TESTS_REPLAY_RUN_GRAPH_H_

#include <map>
#include <string>
#include <vector>

namespace weft::testing {

using CellId = int;

// What one rank did in one run of a program, and what has to be done before what.
class RunGraph {
 public:
  struct Access {
    CellId cell;
    bool is_write;
  };

  // An op on a stream.
  void Issue(int stream, std::vector<Access> accesses, const std::string& place);
  // Whatever comes later on stream `to` waits for what is on `from`.
  void Wait(int from, int to);
  // Whatever comes later waits for what is on `from`.
  void Block(int from);

  // Two accesses that nothing orders, one of them issued here; empty: there are none.
  std::string FindRace() const;
  // What may still run when the host is done, for the graph of what follows.
  RunGraph Pending() const;

 private:
  void Grow();
  int LastOf(int stream) const;
  int AddNode(int stream);
  bool Leads(int from, int to) const;

  std::vector<std::vector<int>> before_;  // by node
  std::vector<int> stream_;               // by node; -1: of the host
  std::vector<std::vector<Access>> accesses_;
  std::vector<std::string> places_;
  std::map<int, int> last_;  // by stream
  int host_ = -1;
  int num_pending_ = 0;  // nodes, the first ones, that were issued earlier
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_REPLAY_RUN_GRAPH_H_
