// The ring of src/device/tma_ring.h on threads of the CPU: each warp is a thread, TMA is another one per block. Under
// ThreadSanitizer it also shows that the barriers alone order all accesses to the slots.
#include "device/tma_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "device/wait_watch.h"
#include "mbarrier_model.h"

namespace heddle {
namespace {

constexpr int kSteps = 400;
constexpr int kSlotNumbers = 4;  // a slot is so many numbers, each brought by one copy
using Slot = std::array<int, kSlotNumbers>;

int number_of(int step, int i) {
  return kSlotNumbers * step + i;
}

// What a copy by TMA does: writes, then says so at the barrier.
template <class Barrier>
std::function<void()> copy_of(int number, int& to, Barrier& barrier) {
  return [number, &to, &barrier] {
    to = number;
    barrier.complete(sizeof(int));
  };
}

TEST(RingPlace, SlotAndParityFollowFromTheNumberOfSteps) {
  RingProducer<3> producer;
  RingConsumer<3> consumer;
  for (int step = 0; step < 20; ++step, producer.advance(), consumer.advance()) {
    EXPECT_EQ(producer.slot(), step % 3);
    EXPECT_EQ(consumer.slot(), step % 3);
    EXPECT_EQ(consumer.parity(), step / 3 % 2);
    EXPECT_EQ(producer.parity(), 1 - consumer.parity());
  }
  RingConsumer<1> single;
  for (int step = 0; step < 4; ++step, single.advance()) {
    EXPECT_EQ(single.slot(), 0);
    EXPECT_EQ(single.parity(), step % 2);
  }
}

TEST(RingPlace, OfAPartOfARingGoesAroundThatPart) {
  PartialRingProducer producer;
  PartialRingConsumer consumer;
  for (int step = 0; step < 20; ++step, producer.advance(3), consumer.advance(3)) {
    EXPECT_EQ(producer.slot(), step % 3);
    EXPECT_EQ(consumer.slot(), step % 3);
    EXPECT_EQ(consumer.parity(), step / 3 % 2);
    EXPECT_EQ(producer.parity(), 1 - consumer.parity());
  }
}

// One producer has TMA bring each step's numbers, `consumers` threads read them.
template <int kSlots>
void expect_each_consumer_sees_every_step(int consumers) {
  SCOPED_TRACE(testing::Message() << kSlots << " slots, " << consumers << " consumers");
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  TmaRing<MbarrierModel, kSlots> ring;
  ring.init({.producers = 1, .consumers = consumers});
  std::array<Slot, kSlots> slots{};
  std::vector<int> wrong(static_cast<std::size_t>(consumers));
  {
    TmaModel tma;
    std::vector<std::jthread> threads;
    threads.emplace_back([&] {
      RingProducer<kSlots> at;
      for (int step = 0; step < kSteps; ++step, at.advance()) {
        if (!ring.wait_until_empty(at, waits)) return;
        ring.full(at).arrive_expecting(sizeof(Slot));
        for (int i = 0; i < kSlotNumbers; ++i)
          tma.enqueue(copy_of(number_of(step, i),
                              slots[static_cast<std::size_t>(at.slot())][static_cast<std::size_t>(i)], ring.full(at)));
      }
      ring.wait_until_all_empty(at, waits);
      slots = {};  // nobody reads them any more
    });
    for (int& errors : wrong)
      threads.emplace_back([&] {
        RingConsumer<kSlots> at;
        for (int step = 0; step < kSteps; ++step, at.advance()) {
          if (!ring.wait_until_full(at, waits)) return;
          const Slot& slot = slots[static_cast<std::size_t>(at.slot())];
          for (int i = 0; i < kSlotNumbers; ++i)
            errors += slot[static_cast<std::size_t>(i)] == number_of(step, i) ? 0 : 1;
          ring.empty(at).arrive();
        }
      });
  }
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  EXPECT_EQ(wrong, std::vector<int>(wrong.size()));
}

TEST(TmaRing, EachConsumerSeesWhatEveryStepBrought) {
  for (const int consumers : {1, 3}) {
    expect_each_consumer_sees_every_step<1>(consumers);
    expect_each_consumer_sees_every_step<2>(consumers);
    expect_each_consumer_sees_every_step<3>(consumers);
  }
}

// As in decode_stream_sm90.cu: the ring has more slots than the launch uses.
TEST(TmaRing, ServesALaunchThatUsesAPartOfItsSlots) {
  constexpr int kSlots = 5, kUsed = 2;
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  TmaRing<MbarrierModel, kSlots> ring;
  ring.init({.producers = 1, .consumers = 1});
  std::array<int, kUsed> slots{};
  int wrong = 0;
  {
    TmaModel tma;
    std::jthread consumer([&] {
      PartialRingConsumer at;
      for (int step = 0; step < kSteps; ++step, at.advance(kUsed)) {
        if (!ring.wait_until_full(at, waits)) return;
        wrong += slots[static_cast<std::size_t>(at.slot())] == step ? 0 : 1;
        ring.empty(at).arrive();
      }
    });
    PartialRingProducer at;
    for (int step = 0; step < kSteps && ring.wait_until_empty(at, waits); ++step, at.advance(kUsed)) {
      ring.full(at).arrive_expecting(sizeof(int));
      tma.enqueue(copy_of(step, slots[static_cast<std::size_t>(at.slot())], ring.full(at)));
    }
  }
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  EXPECT_EQ(wrong, 0);
}

// As in linear_swiglu_sm90.cu: two blocks, each with a ring; the producer of each brings one half of every slot to both,
// consumers release slots of both.
TEST(TmaRing, ABlockOfAClusterIsLeftAloneOnceAllItsSlotsAreEmpty) {
  constexpr int kSlots = 2, kBlocks = 2, kConsumers = 2;
  struct Block {
    TmaRing<MbarrierModel, kSlots> ring;
    std::array<std::array<int, kBlocks>, kSlots> slots{};
    std::array<int, kConsumers> wrong{};
    TmaModel tma;
  };
  WaitRecord record;
  const KernelWaits waits = waits_of_test(record);
  std::array<Block, kBlocks> blocks;
  for (Block& block : blocks) block.ring.init({.producers = 1, .consumers = kBlocks * kConsumers});
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < kBlocks; ++rank) {
      Block& mine = blocks[rank];
      threads.emplace_back([&, rank] {
        RingProducer<kSlots> at;
        for (int step = 0; step < kSteps; ++step, at.advance()) {
          if (!mine.ring.wait_until_empty(at, waits)) return;
          mine.ring.full(at).arrive_expecting(kBlocks * sizeof(int));
          for (Block& block : blocks)  // multicast: lands in the other block before that one announces it, or after
            mine.tma.enqueue(
                copy_of(step, block.slots[static_cast<std::size_t>(at.slot())][rank], block.ring.full(at)));
        }
        mine.ring.wait_until_all_empty(at, waits);
        mine.slots = {};  // as the next block on this SM would
        mine.ring.init({.producers = 1, .consumers = 1});
      });
      for (int& errors : mine.wrong)
        threads.emplace_back([&] {
          RingConsumer<kSlots> at;
          for (int step = 0; step < kSteps; ++step, at.advance()) {
            if (!mine.ring.wait_until_full(at, waits)) return;
            for (const int number : mine.slots[static_cast<std::size_t>(at.slot())]) errors += number == step ? 0 : 1;
            for (Block& block : blocks) block.ring.empty(at).arrive();
          }
        });
    }
  }
  EXPECT_EQ(record.state, WaitRecord::empty) << what_gave_up(record, waits.limit.nanoseconds);
  for (const Block& block : blocks) EXPECT_EQ(block.wrong, (std::array<int, kConsumers>{}));
}

TEST(TmaRing, AnEmptyRingIsFullOfEmptySlotsAndOfNothingElse) {
  WaitRecord record;
  KernelWaits waits = waits_of_test(record);
  TmaRing<MbarrierModel, 2> ring;
  ring.init({.producers = 1, .consumers = 1});
  RingProducer<2> producer;
  EXPECT_TRUE(ring.wait_until_empty(producer, waits));
  ring.wait_until_all_empty(producer, waits);
  EXPECT_EQ(record.state, WaitRecord::empty);

  waits.limit.nanoseconds = 1'000'000;
  EXPECT_FALSE(ring.wait_until_full(RingConsumer<2>(), waits));
  EXPECT_EQ(record.state, WaitRecord::complete);
  EXPECT_EQ(record.tag.view(), "test");
}

TEST(TmaRing, AProducerOneLapAheadWaitsForEveryConsumer) {
  WaitRecord record;
  KernelWaits waits = waits_of_test(record);
  TmaRing<MbarrierModel, 2> ring;
  ring.init({.producers = 1, .consumers = 2});
  RingProducer<2> producer;
  const RingConsumer<2> consumer;
  for (int step = 0; step < 2; ++step, producer.advance()) ring.full(producer).arrive();
  EXPECT_TRUE(ring.wait_until_full(consumer, waits));
  ring.empty(consumer).arrive();
  waits.limit.nanoseconds = 1'000'000;
  EXPECT_FALSE(ring.wait_until_empty(producer, waits));
  record = {};
  ring.empty(consumer).arrive();
  EXPECT_TRUE(ring.wait_until_empty(producer, waits));
}

TEST(MbarrierModel, BytesThatLandBeforeTheyAreAnnouncedEndNoPhase) {
  WaitRecord record;
  KernelWaits waits = waits_of_test(record);
  waits.limit.nanoseconds = 1'000'000;
  MbarrierModel barrier;
  barrier.init(1);
  barrier.complete(16);
  EXPECT_FALSE(barrier.wait(waits, 0));
  record = {};
  barrier.arrive_expecting(24);
  EXPECT_FALSE(barrier.wait(waits, 0));
  record = {};
  barrier.complete(8);
  EXPECT_TRUE(barrier.wait(waits, 0));
}

}  // namespace
}  // namespace heddle
