// A rank's part in what others do to its device's memory: a thread that takes their requests from the staging area and carries
// them out, those of one lane of a rank in the order in which they were sent.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/buffer.h"
#include "base/pinned_buffer.h"
#include "base/thread_pool.h"
#include "fabric/fabric.h"
#include "fabric/staged/staging_area.h"

namespace heddle {

// The tag of a record that a failure of the host fabric has filled, and no wait of the device.
inline constexpr Tag kLostRank = "lost a rank";
// Whether a wait of the device has given up.
bool gave_up_itself(const WaitRecord& record);

// Memory that the host and a device access in place.
class SharedWords {
 public:
  SharedWords(Device device, std::size_t bytes);
  std::byte* data() { return pinned_.data() != nullptr ? pinned_.data() : host_.data(); }

 private:
  PinnedBuffer pinned_;  // for a GPU
  Buffer host_;
};

// A stream of the device; of the CPU, with a pool of its own.
class OwnStream {
 public:
  explicit OwnStream(Device device) : stream_(device.kind == DeviceKind::cpu ? Stream(pool_) : Stream(device)) {}
  Stream& operator*() { return stream_; }

 private:
  ThreadPool pool_{1};
  Stream stream_;
};

class StagingServer {
 public:
  // The rank's own thread goes on calling `host`, but neither allocates. `record` is that of the device's waits.
  StagingServer(Fabric& host, Device device, std::span<std::byte> heap, const StagingArea& area, WaitRecord& record,
                std::uint64_t limit_nanoseconds);

  // Serves until every rank has called this, or the run has failed.
  void close();

 private:
  void run(const std::stop_token& stop);
  bool serve();
  void carry_out(int from, int lane, const StagedRequest& request, const std::byte* bytes);
  void answer(int from, int lane, const StagedRequest& request);
  std::byte* place_of(int from, const StagedRequest& request) const;
  // Passes a failure of the host fabric on to the device's waits, and the reverse. Whether there is one.
  bool pass_on_failure();

  Fabric& host_;
  Device device_;
  std::span<std::byte> heap_;
  StagingArea area_;
  WaitRecord& record_;
  std::uint64_t limit_nanoseconds_;
  ThreadPool pool_{1};
  Stream messages_{pool_}, idle_{pool_};
  OwnStream copies_{device_};
  SharedWords word_{device_, sizeof(std::uint64_t)};
  Buffer answer_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace heddle
