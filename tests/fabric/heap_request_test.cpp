// What a rank's heap server rejects. Compiled in builds with Open MPI alone.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "fabric/mpi/heap_request.h"

namespace heddle {
namespace {

constexpr std::size_t kHeapBytes = 4096;
constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

std::string fault(const HeapRequest& request, std::size_t within = 0) {
  std::vector<std::byte> message(sizeof request + within);
  std::memcpy(message.data(), &request, sizeof request);
  return fault_of_request(message, kHeapBytes);
}

TEST(HeapRequest, IsCarriedOutUpToTheHeapsEnd) {
  EXPECT_EQ(fault({.kind = HeapRequest::put, .offset = kHeapBytes - 64, .bytes = 64}, 64), "");
  EXPECT_EQ(fault({.kind = HeapRequest::put_behind, .offset = 0, .bytes = kHeapBytes}), "");
  EXPECT_EQ(fault({.kind = HeapRequest::get, .offset = 1, .bytes = kHeapBytes - 1}), "");
  EXPECT_EQ(fault({.kind = HeapRequest::get, .offset = kHeapBytes, .bytes = 0}), "");
  EXPECT_EQ(fault({.kind = HeapRequest::set, .offset = kHeapBytes - 8, .value = kHuge}), "");
  EXPECT_EQ(fault({.kind = HeapRequest::add, .offset = 0, .value = 1}), "");
  EXPECT_EQ(fault({.kind = HeapRequest::tell, .reply_tag = 2}), "");
}

TEST(HeapRequest, BeyondTheHeapNamesOffsetAndBytes) {
  EXPECT_EQ(fault({.kind = HeapRequest::put, .offset = kHeapBytes - 63, .bytes = 64}, 64),
            "a put of 64 bytes at offset 4033 of a heap of 4096 bytes");
  EXPECT_EQ(fault({.kind = HeapRequest::get, .offset = kHeapBytes + 1, .bytes = 0}),
            "a get of 0 bytes at offset 4097 of a heap of 4096 bytes");
  EXPECT_EQ(fault({.kind = HeapRequest::set, .offset = kHeapBytes, .value = 1}),
            "a signal of a flag at offset 4096 of a heap of 4096 bytes");
}

TEST(HeapRequest, WhoseEndOverflowsIsRejected) {
  for (const auto kind : {HeapRequest::put_behind, HeapRequest::get}) {
    EXPECT_NE(fault({.kind = kind, .offset = kHuge - 7, .bytes = 16}), "");
    EXPECT_NE(fault({.kind = kind, .offset = 16, .bytes = kHuge - 7}), "");
  }
  EXPECT_NE(fault({.kind = HeapRequest::add, .offset = kHuge - 7, .value = 1}), "");
}

TEST(HeapRequest, MayNotHoldMoreThanAPiece) {
  const HeapRequest request{.kind = HeapRequest::get, .offset = 0, .bytes = kPieceBytes + 1};
  std::vector<std::byte> message(sizeof request);
  std::memcpy(message.data(), &request, sizeof request);
  EXPECT_EQ(fault_of_request(message, 2 * kPieceBytes),
            "a get of 16777217 bytes, more than the 16777216 of one request");
}

TEST(HeapRequest, OfAFlagThatIsNotAlignedIsRejected) {
  EXPECT_EQ(fault({.kind = HeapRequest::add, .offset = 12, .value = 1}),
            "a signal_add of a flag at offset 12 of a heap of 4096 bytes");
}

TEST(HeapRequest, MustBeAsLongAsItSays) {
  EXPECT_EQ(fault({.kind = HeapRequest::put, .offset = 0, .bytes = 64}, 60),
            "a put with 60 bytes in its message, not 64");
  EXPECT_EQ(fault({.kind = HeapRequest::set, .offset = 0, .value = 1}, 4),
            "a signal with 4 bytes in its message, not 0");
  const std::vector<std::byte> cut(sizeof(HeapRequest) - 1);
  EXPECT_EQ(fault_of_request(cut, kHeapBytes), "a message of 31 bytes, where a request has 32");
}

TEST(HeapRequest, OfAKindThatThereIsNotIsRejected) {
  EXPECT_EQ(fault({.kind = static_cast<HeapRequest::Kind>(17)}), "a request of kind 17, which there is not");
}

}  // namespace
}  // namespace heddle
