// A rank's MPI: the heaps, the messages, and the waits, each done by the calling thread. Offsets are from the heap's
// begin, the same on every rank.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "fabric/fabric.h"
#include "fabric/launch.h"
#include "fabric/message_exchange.h"
#include "fabric/mpi/bulk_transfer.h"
#include "fabric/mpi/heap_server.h"
#include "fabric/mpi/rank_watch.h"
#include "fabric/mpi/shared_heaps.h"

namespace heddle {

enum class SignalKind : std::uint8_t { set, add };

// Functions throw Timeout and Failure; afterwards the world is in trouble, and every function throws the same again.
// Any thread may call them.
class MpiWorld {
 public:
  // Collective, as open_mpi_fabric says. `heap` is the caller's; null: an own one.
  MpiWorld(const Launch& launch, const FabricOptions& options, std::byte* heap);
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  // Collective, too, unless an exception is on its way: the other ranks are then told that this one has ended.
  ~MpiWorld();

  int rank() const { return launch_.rank; }
  int size() const { return launch_.world_size; }
  std::byte* heap() const { return heap_; }
  // All heaps, where this process has them mapped; null where they are reached by MPI alone.
  const SharedHeaps* shared_heaps() const { return shared_ ? &*shared_ : nullptr; }
  // How long a wait may last, and, with shared heaps, where all ranks see that one has given up.
  WaitLimit wait_limit() const;

  // As Fabric's, of the calling thread, which is a stream's (mpi_puts.cpp, mpi_gets.cpp).
  void begin_put(int peer, std::size_t offset, const void* source, std::size_t bytes);
  void put(int peer, std::size_t offset, const void* source, std::size_t bytes);
  void end_begun_puts();  // waits for those that nobody has put
  void begin_get(int peer, void* destination, std::size_t offset, std::size_t bytes);
  void get(int peer, void* destination, std::size_t offset, std::size_t bytes);
  void end_begun_gets();  // waits for those that nobody has got
  void signal(int peer, std::size_t offset, std::uint64_t value, SignalKind kind);
  void wait(int from, std::size_t offset, std::uint64_t target, Tag tag);
  void fence();
  void barrier(std::span<const int> team);  // the own rank is in it

  // As MessageExchange says (mpi_messages.cpp).
  void exchange_messages(std::uint64_t channel, std::span<const OutgoingMessage> outgoing,
                         std::span<const IncomingMessage> incoming, Tag tag);

  void clear(std::size_t offset, std::size_t bytes);  // of the own heap, to zero
  // Collective: what each rank gave, by rank. Limited by the deadline, but in close().
  std::vector<std::uint64_t> exchange(std::uint64_t own, Tag tag);

  void throw_if_in_trouble();
  // As Fabric::abandon.
  void abandon(std::string_view cause);

 private:
  // What the deadline limits: a wait, or the time between two increases of what it looks at.
  enum class DeadlineOf : std::uint8_t { wait, step };

  void open();
  void start_progress();
  bool share_heaps();             // collective; false on every rank if it cannot be, or is not to be, on one
  void share_heaps_of_machine();  // collective; leaves near_ empty where it cannot be, or is not to be
  void open_own_heap();
  void serve_own_heap();
  void close();
  void leave_behind();
  void serve_others(const std::stop_token& stop);
  void pass_on_trouble(const std::stop_token& stop);
  void put_record_into_words();
  // A put by messages, of which all have been sent. Its requests are of kPieceBytes each but the last.
  struct Put {
    // Of those that no test has found gone.
    std::size_t bytes_left() const;

    struct Piece {
      HeapRequest request;
      MPI_Request asked = MPI_REQUEST_NULL;
      BulkTransfer sent;
    };
    int peer;
    const std::byte* source;
    std::size_t offset, bytes;
    std::deque<Piece> pieces = {};

    bool operator==(const Put& other) const;  // as calls
  };
  std::deque<Put>& puts_of_thread();  // which alone uses them
  void send_pieces(Put& put);
  void end_oldest_put(std::deque<Put>& puts);
  // A get by messages. Its requests are of kPieceBytes each but the last.
  struct Get {
    // Of those that a test has found come.
    std::size_t bytes_come() const;
    bool done() const { return bytes_asked == bytes && pieces.empty(); }

    struct Piece {
      HeapRequest request;
      MPI_Request asked = MPI_REQUEST_NULL;
      BulkTransfer received;
    };
    int peer;
    std::byte* destination;
    std::size_t offset, bytes;
    std::uint64_t turn = 0;  // gets that it comes behind
    std::size_t bytes_asked = 0;
    std::deque<Piece> pieces = {};

    bool operator==(const Get& other) const;  // as calls
  };
  void ask_for(std::deque<Get>& gets);  // needs mutex_
  void ask_for_piece(Get& get);         // needs mutex_
  void end_oldest_get();                // of the calling thread, which has one

  // mpi_memory.cpp; the first two need mutex_. `sent` completes when the message, a request and perhaps bytes behind it,
  // may be overwritten.
  void ask(int peer, const HeapRequest& request, const void* message, MPI_Request& sent);
  int next_reply_tag();
  // Returns when it has left.
  void send(int peer, const HeapRequest& request, std::span<const std::byte> within, Tag tag);
  // Returns when each of the peers has carried out all earlier requests of this rank.
  void confirm(std::span<const int> peers, Tag tag);
  void confirm_all_but(int peer, Tag tag);  // the requests of this thread
  void confirm_all_threads();
  void wait_in_memory(int from, const std::uint64_t* flag, std::uint64_t target, Tag tag);
  // Null where only MPI reaches it.
  std::byte* mapped_heap(int peer) const {
    if (shared_) return shared_->heap(peer);
    if (near_ && peer >= first_near_ && peer < first_near_ + launch_.num_local_ranks)
      return near_->heap(peer - first_near_);
    return peer == rank() ? heap_ : nullptr;
  }
  void check(const char* call, int code, int peer);
  // Returns a lock of mutex_ if there has been no trouble since; otherwise throws the trouble. MPI is called only under
  // this lock. So after a thread has held mutex_ since trouble began, no other thread calls MPI again or writes to what
  // that thread has posted, and it may unwind. await() relies on that; between posting and await() nothing else may
  // throw without mutex_.
  std::unique_lock<std::mutex> lock_mpi();
  int barrier_tag(std::uint64_t team, int round) const;
  // Waits until look(), called with mutex_ held, is >= target. Serves the other ranks meanwhile. If it throws, the
  // world is in trouble and nobody calls MPI any more (lock_mpi).
  void await(int from, Tag tag, std::uint64_t target, FunctionRef<std::uint64_t()> look,
             DeadlineOf of = DeadlineOf::wait);
  void await_or_throw(int from, Tag tag, std::uint64_t target, FunctionRef<std::uint64_t()> look, DeadlineOf of);
  void await(MPI_Request& request, int from, Tag tag);
  void await_message(MPI_Request& request, const IncomingMessage& message, Tag tag);

  Launch launch_;
  std::size_t heap_bytes_;
  int exceptions_at_start_;
  std::uint32_t looks_before_yield_;
  RankWatch watch_;

  std::mutex mutex_;  // around every MPI call
  MPI_Comm messages_ = MPI_COMM_NULL;
  MPI_Comm collectives_ = MPI_COMM_NULL;
  int largest_tag_ = 32767;  // of both; MPI promises so much
  std::byte* heap_ = nullptr;
  std::optional<SharedHeaps> shared_;  // or else all of these:
  std::optional<SharedHeaps> near_;    // of this machine's ranks, from first_near_ on
  int first_near_ = 0;
  std::unique_ptr<Mapping> own_heap_;  // where heap_ is neither shared nor the caller's
  MPI_Comm memory_ = MPI_COMM_NULL;
  std::unique_ptr<HeapServer> server_;  // of heap_
  MpiCheck check_ = [this](const char* call, int code, int peer) { check(call, code, peer); };
  std::uint64_t num_replies_ = 0;  // asked for so far
  // By thread, and so by stream: ranks with puts or signals that may not have arrived, no rank twice.
  std::unordered_map<std::thread::id, std::vector<int>> unconfirmed_;
  // By thread: its puts and gets, oldest first; no thread without any.
  std::unordered_map<std::thread::id, std::deque<Put>> puts_;
  std::unordered_map<std::thread::id, std::deque<Get>> gets_;
  std::unordered_map<std::uint64_t, std::uint64_t> barriers_entered_;  // by the team's hash

  bool closing_ = false;
  std::atomic<int> num_waiting_ = 0;  // threads that make progress themselves
  std::jthread progress_;             // last: it uses all of the above
};

}  // namespace heddle
