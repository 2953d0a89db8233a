// A ring of slots in shared memory between warps: producers fill slots, as a rule by TMA, while consumers still read
// earlier ones. Each slot has two barriers, `full` and `empty`; their phases alternate, and each has one phase per lap
// around the ring. Producers and consumers go through the slots in the same order, one slot a step:
//
//   __shared__ TmaRing<Mbarrier, kSlots> ring;  // beside the slots themselves
//   if (threadIdx.x == 0) {
//     ring.init({.producers = 1, .consumers = kWarps});
//     publish_barriers();
//   }
//   __syncthreads();
//
//   // the producer, a warp:                                 // each of kWarps consumers, a warp:
//   RingProducer<kSlots> at;                                 RingConsumer<kSlots> at;
//   for (int step = 0; step < steps; ++step) {               for (int step = 0; step < steps; ++step) {
//     ring.wait_until_empty(at, waits);                        ring.wait_until_full(at, waits);
//     if (lane == 0)                                           use(slots[at.slot()]);
//       ring.full(at).arrive_expecting(bytes);                 fence_async_proxy();
//     __syncwarp();                                            __syncwarp();  // all lanes have read it
//     copy_box(slots[at.slot()], ...,                          if (lane == 0) ring.empty(at).arrive();
//              ring.full(at).address());                       at.advance();
//     at.advance();                                          }
//   }
//
// Memory order, at the scope of the block: a consumer that wait_until_full() lets through sees the bytes that TMA has
// written to the slot, and what producers wrote before they arrived at `full`. A producer that wait_until_empty() lets
// through may overwrite the slot, itself or by TMA: all that consumers read before they arrived at `empty` has been
// read. Where TMA fills the slots, that takes more than the arrival: TMA belongs to the async proxy, and a thread that
// has read or written a slot by ordinary instructions calls fence_async_proxy() before it arrives. Without it a GEMM was
// seen to multiply what TMA had written for a later step. Reads by wgmma belong to the async proxy themselves.
//
// The source is shared: Mbarrier is its barrier on a GPU; tests/device/tma_ring_test.cpp runs it on threads of the CPU,
// with a model of an mbarrier. Cf. PipelineTmaAsync of CUTLASS.
#pragma once

#include "base/host_device.h"

namespace heddle {

// Where a thread is in a ring: at a slot, and at a phase of the slot's barriers, known by its parity. One number, the
// step modulo two laps, because kernels that keep it have no register to spare.
template <int kSlots>
class RingPlace {
 public:
  HEDDLE_HOST_DEVICE int slot() const { return step_ < kSlots ? step_ : step_ - kSlots; }
  HEDDLE_HOST_DEVICE int parity() const { return step_ < kSlots ? 0 : 1; }  // of the phase to wait for

  // On to the next step.
  HEDDLE_HOST_DEVICE void advance() {
    if (++step_ == 2 * kSlots) step_ = 0;
  }

 protected:
  HEDDLE_HOST_DEVICE explicit RingPlace(int lap) : step_(lap * kSlots) {}

 private:
  int step_;
};

// Waits for nobody in the first lap: the phase before a barrier's first one, which has parity 1, has ended.
template <int kSlots>
struct RingProducer : RingPlace<kSlots> {
  HEDDLE_HOST_DEVICE RingProducer() : RingPlace<kSlots>(1) {}
};

template <int kSlots>
struct RingConsumer : RingPlace<kSlots> {
  HEDDLE_HOST_DEVICE RingConsumer() : RingPlace<kSlots>(0) {}
};

// The same in a ring of which a launch uses only the first `slots` slots: as many as it has memory for.
class PartialRingPlace {
 public:
  HEDDLE_HOST_DEVICE int slot() const { return slot_; }
  HEDDLE_HOST_DEVICE int parity() const { return parity_; }

  HEDDLE_HOST_DEVICE void advance(int slots) {
    if (++slot_ == slots) slot_ = 0, parity_ ^= 1;
  }

 protected:
  HEDDLE_HOST_DEVICE explicit PartialRingPlace(int parity) : parity_(parity) {}

 private:
  int slot_ = 0, parity_;
};

struct PartialRingProducer : PartialRingPlace {
  HEDDLE_HOST_DEVICE PartialRingProducer() : PartialRingPlace(1) {}
};

struct PartialRingConsumer : PartialRingPlace {
  HEDDLE_HOST_DEVICE PartialRingConsumer() : PartialRingPlace(0) {}
};

// How many arrivals end a phase of a slot's barriers. Bytes of TMA that an arrival announced must have landed, too.
struct RingArrivals {
  int producers;  // at `full`
  int consumers;  // at `empty`
};

// Barrier has init(arrivals), arrive(), arrive_expecting(bytes), and wait<HowLong>(waits, parity), which is false when
// it gave up.
template <class Barrier, int kSlots>
class TmaRing {
 public:
  // One thread, which then publishes the barriers to the others.
  HEDDLE_HOST_DEVICE void init(RingArrivals arrivals) {
    for (Barrier& barrier : full_) barrier.init(arrivals.producers);
    for (Barrier& barrier : empty_) barrier.init(arrivals.consumers);
  }

  HEDDLE_HOST_DEVICE Barrier& full(int slot) { return full_[slot]; }
  HEDDLE_HOST_DEVICE Barrier& full(const RingPlace<kSlots>& at) { return full(at.slot()); }
  HEDDLE_HOST_DEVICE Barrier& full(const PartialRingPlace& at) { return full(at.slot()); }
  HEDDLE_HOST_DEVICE Barrier& empty(int slot) { return empty_[slot]; }
  HEDDLE_HOST_DEVICE Barrier& empty(const RingPlace<kSlots>& at) { return empty(at.slot()); }
  HEDDLE_HOST_DEVICE Barrier& empty(const PartialRingPlace& at) { return empty(at.slot()); }

  // Until all consumers have released the slot. False when it gave up: then the slot may still be in use.
  template <class... HowLong, class Waits>
  HEDDLE_HOST_DEVICE bool wait_until_empty(const RingProducer<kSlots>& at, const Waits& waits) {
    return empty(at).template wait<HowLong...>(waits, at.parity());
  }
  template <class... HowLong, class Waits>
  HEDDLE_HOST_DEVICE bool wait_until_empty(const PartialRingProducer& at, const Waits& waits) {
    return empty(at).template wait<HowLong...>(waits, at.parity());
  }

  // Until the slot is filled. False when it gave up: then anything may lie in the slot.
  template <class... HowLong, class Waits>
  HEDDLE_HOST_DEVICE bool wait_until_full(const RingConsumer<kSlots>& at, const Waits& waits) {
    return full(at).template wait<HowLong...>(waits, at.parity());
  }
  template <class... HowLong, class Waits>
  HEDDLE_HOST_DEVICE bool wait_until_full(const PartialRingConsumer& at, const Waits& waits) {
    return full(at).template wait<HowLong...>(waits, at.parity());
  }

  // Until all slots are empty, by a producer that fills no more. Where consumers also release the slots of other blocks
  // of the cluster, and producers fill them: after it nobody touches this block's ring, and the block may end.
  template <class... HowLong, class Waits>
  HEDDLE_HOST_DEVICE void wait_until_all_empty(RingProducer<kSlots> at, const Waits& waits) {
    for (int i = 0; i < kSlots; ++i, at.advance()) wait_until_empty<HowLong...>(at, waits);
  }

 private:
  Barrier full_[kSlots], empty_[kSlots];
};

}  // namespace heddle
