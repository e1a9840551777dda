// Collectives over the rendezvous of a shared ring.
#ifndef WEFT_EXECUTOR_COMMUNICATORS_RING_COMMUNICATOR_H_
#define WEFT_EXECUTOR_COMMUNICATORS_RING_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executor/communicators/communicator.h"
#include "executor/communicators/shared_ring.h"

namespace weft {

// How the ranks of a group reach each other's buffers. Thread-safe.
class SharedBuffers {
 public:
  virtual ~SharedBuffers() = default;
  // Where other ranks find a buffer of this process; nullopt: they cannot reach it.
  virtual std::optional<uint64_t> PlaceOf(const void* buffer, size_t bytes) const = 0;
  // The buffer of a rank of the run at a place.
  virtual void* At(int rank, uint64_t place) const = 0;
  // Memory that others can reach. Throws std::bad_alloc.
  virtual std::shared_ptr<void> Allocate(size_t bytes) = 0;
};

// The buffers of threads.
SharedBuffers* BuffersOfThreads();

// The end of a rank, by its position. Inputs of small calls travel through the state of the ring,
// and each rank computes its own result. Otherwise each rank computes its part of the results of
// all, in their buffers. Buffers that others cannot reach are copied.
class RingCommunicator : public Communicator {
 public:
  // Both must outlive it.
  RingCommunicator(SharedRing* ring, const RingKey& key, int rank, SharedBuffers* buffers);

  int rank() const override { return rank_; }
  int nranks() const override { return ring_->nranks(); }
  absl::Status Run(const CollectiveCall& call, const void* in, void* out) override;

 private:
  absl::Status RunSmall(const CollectiveCall& call, const void* in, void* out);
  absl::Status RunLarge(const CollectiveCall& call, const void* in, void* out);

  // A buffer in place of one that others cannot reach. Kept from call to call.
  struct Scratch {
    std::shared_ptr<void> memory;
    size_t bytes = 0;
  };
  absl::Status Reserve(const CollectiveCall& call, size_t bytes, Scratch* scratch) const;

  SharedRing* const ring_;
  const RingKey key_;
  const int rank_;
  SharedBuffers* const buffers_;
  // Of the current call, by rank.
  std::vector<const void*> in_;
  std::vector<void*> out_;
  Scratch in_scratch_, out_scratch_;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_COMMUNICATORS_RING_COMMUNICATOR_H_
