// A cluster of blocks processes one row after the other. All filters keep a prefix of the candidates in descending
// order, so the kernel finds the border: the last candidate that is kept. A candidate's distance is (largest - logit) /
// temperature in float64; as an integer, its bits have the same order. Histograms over the cluster narrow the border
// down: first of distances in equal steps; then, only if too many candidates are left, by digits of distance and id
// (radix select). The remaining candidates are ranked pairwise. Probabilities are summed as integers, so that no sum
// depends on an order.
//
// The last pass draws (Gumbel-max). It compares random numbers in float32 first. For a token that might win, it
// computes the score in float64 and then checks border and min_p.
#include <limits>

#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/sampling/largest_sm90.cuh"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample_sm90.h"

namespace heddle {
namespace {

namespace cg = cooperative_groups;

constexpr int kSampleThreads = 512;
template <int kBlocks>
constexpr int kRowThreads = kBlocks* kSampleThreads;
constexpr int kSampleLoads = 4;                // per thread at once
constexpr int kBins = 2048;                    // of the first histogram
constexpr double kBinsOfUnit = 32;             // so the last bin holds all distances from 64 up
constexpr int kDigitBins = 256, kDigits = 12;  // eight of the distance, four of the id
constexpr int kListed = kSampleThreads;        // candidates that are ranked pairwise
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  std::uint64_t distance;  // bits of a double >= 0
  std::int32_t id;
};

__device__ bool comes_before(const Candidate& a, const Candidate& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.id < b.id);
}

// A number of candidates and their probability.
struct Amount {
  std::uint32_t count;
  std::uint64_t weight;
};

__device__ Amount operator+(const Amount& a, const Amount& b) {
  return {a.count + b.count, a.weight + b.weight};
}

struct Histogram {
  std::uint32_t counts[kBins];
  std::uint64_t weights[kBins];
};

// The bin in which an amount is reached, and the amounts before it and in it.
struct Crossing {
  int bin;
  Amount before, in;
};

// A block's shared memory. The cluster reduces `mine` into `shares`, one part per block, and these into `first` or
// `digits`.
template <int kBlocks>
struct Shared {
  Histogram mine, first;
  std::uint32_t share_counts[kBins / kBlocks];
  std::uint64_t share_weights[kBins / kBlocks];
  Histogram digits;  // the first kDigitBins are used
  std::uint32_t warp_counts[kSampleThreads / 32];
  std::uint64_t warp_weights[kSampleThreads / 32];
  Crossing crossing;
  std::uint32_t num_listed;  // in block 0
  Candidate listed[kListed];
  std::uint64_t listed_weights[kListed];
  Candidate border;
  std::uint64_t border_weight;  // of the border and all before it
  RowSummary warps[2][kSampleThreads / 32];
  RowSummary block[2];
};

// A row's logits with penalties and biases applied, as its cluster iterates over them. `adjusted` has a bit for each id
// of this block: whether it is in the history.
template <int kBlocks>
struct Row {
  __device__ Row(const SampleParams& params, unsigned row, std::uint32_t* adjusted_ids)
      : settings(params.rows[row]),
        logits(static_cast<const float*>(params.logits.data) + row * params.logits.row_stride),
        vocab_size(static_cast<int>(params.logits.columns)),
        adjusted(settings.adjusted() ? adjusted_ids : nullptr) {}

  __device__ bool has(std::int32_t id) const { return id >= 0 && id < vocab_size; }

  // Ids go to blocks in pieces of kSampleThreads. The caller calls __syncthreads() afterwards.
  __device__ void note_history() const {
    for (int i = threadIdx.x; i < settings.num_history; i += kSampleThreads) {
      const std::int32_t id = settings.history[i].id;
      if (!has(id) || id / kSampleThreads % kBlocks != static_cast<int>(blockIdx.x)) continue;
      const int place = id / kRowThreads<kBlocks> * kSampleThreads + id % kSampleThreads;
      atomicOr(&adjusted[place / 32], 1u << (place % 32));
    }
  }

  __device__ bool is_adjusted(int id) const {
    if (adjusted == nullptr) return false;
    const int place = id / kRowThreads<kBlocks> * kSampleThreads + id % kSampleThreads;
    return (adjusted[place / 32] >> (place % 32) & 1) != 0;
  }

  __device__ double adjusted_logit(const HistoryToken& token) const {
    double logit = logits[token.id];
    if (token.count != HistoryToken::kUnseen)
      logit = logit > 0 ? __ddiv_rn(logit, settings.repetition_penalty) : __dmul_rn(logit, settings.repetition_penalty);
    if (token.count > 0)
      logit =
          __dsub_rn(logit, __dadd_rn(settings.presence_penalty, __dmul_rn(settings.frequency_penalty, token.count)));
    return __dadd_rn(logit, static_cast<double>(token.bias));
  }

  // Calls f(logit, id) once for each token of this thread's part of the row; the logit is a float if it is not
  // adjusted.
  template <class F>
  __device__ void each(F f) const {
    for (int first = static_cast<int>(blockIdx.x) * kSampleThreads + static_cast<int>(threadIdx.x); first < vocab_size;
         first += kSampleLoads * kRowThreads<kBlocks>) {
      float held[kSampleLoads];
#pragma unroll
      for (int i = 0; i < kSampleLoads; ++i)
        held[i] = first + i * kRowThreads<kBlocks> < vocab_size ? logits[first + i * kRowThreads<kBlocks>] : 0;
#pragma unroll
      for (int i = 0; i < kSampleLoads; ++i) {
        const int id = first + i * kRowThreads<kBlocks>;
        if (id < vocab_size && !is_adjusted(id)) f(held[i], id);
      }
    }
    if (adjusted == nullptr) return;
    for (int i = static_cast<int>(blockIdx.x) * kSampleThreads + static_cast<int>(threadIdx.x);
         i < settings.num_history; i += kRowThreads<kBlocks>) {
      const HistoryToken token = settings.history[i];
      if (has(token.id)) f(adjusted_logit(token), token.id);
    }
  }

  // The largest logit after penalties and biases, and whether the logits before them are sound.
  __device__ RowSummary summary() const {
    RowSummary mine{{-kInfinity, kNoToken}, 0, 0};
    each([&](auto logit, int id) {
      mine.largest = better(mine.largest, {logit, id});
      const float raw = sizeof(logit) == sizeof(float) ? static_cast<float>(logit) : logits[id];
      if (!(raw < kInfinity)) mine.unsound = 1;
      if (raw > -kInfinity) mine.finite = 1;
    });
    return mine;
  }

  SampleRow settings;
  const float* logits;
  int vocab_size;
  std::uint32_t* adjusted;
};

template <int kBlocks>
class RowSampler {
 public:
  __device__ RowSampler(const Row<kBlocks>& row, double largest, Shared<kBlocks>& shared)
      : row_(row), largest_(largest), shared_(shared) {
    while ((std::int64_t{1} << (62 - shift_)) < row.vocab_size) --shift_;
  }

  __device__ void keep_top_k_and_p() {
    const SampleRow& settings = row_.settings;
    const bool top_k = settings.top_k > 0 && settings.top_k < row_.vocab_size, top_p = settings.top_p < 1;
    if (!top_k && !top_p) return;
    clear(shared_.mine, kBins);
    row_.each([&](auto logit, int) {
      const double distance = distance_of(logit);
      add(bin_of(distance), top_p ? weight_of(distance) : 0);
    });
    add_up(shared_.first, kBins);
    std::uint64_t total = 0;
    if (top_k) {
      const auto most = static_cast<std::uint32_t>(settings.top_k);
      total = keep_until([most](const Amount& amount) { return amount.count >= most; });
    } else {
      const Crossing all = cross(shared_.first, kBins, {}, [](const Amount&) { return false; });
      total = all.before.weight;
    }
    if (!top_p) return;
    const double enough = __dmul_rn(settings.top_p, static_cast<double>(total));
    keep_until([enough](const Amount& amount) { return !(static_cast<double>(amount.weight) < enough); });
  }

  // This thread's best score among the kept tokens.
  __device__ Scored draw(std::int32_t largest_id) {
    const SampleRow& settings = row_.settings;
    constexpr float kMargin = 1e-3f;  // bounds the error of float32
    const double per_unit = 1 / settings.temperature;
    // No kept token is farther than this.
    float farthest = last_.id == kNoToken
                         ? kInfinity
                         : static_cast<float>(__longlong_as_double(static_cast<long long>(last_.distance)));
    if (settings.min_p > 0) farthest = fminf(farthest, -logf(static_cast<float>(settings.min_p)));
    farthest += kMargin + 1e-5f * farthest;
    // A lower bound of the winner's score: the largest token's score, unless equally good tokens fill top_k.
    float ahead = comes_before(last_, {0, largest_id}) ? -kInfinity : noise(largest_id) - kMargin;
    Scored best{-kInfinity, kNoToken};
    row_.each([&](auto logit, int id) {
      const auto l = static_cast<float>((static_cast<double>(logit) - largest_) * per_unit);
      if (l == -kInfinity || -l > farthest) return;
      const float score = l + noise(id);
      if (score + kMargin - 1e-6f * l < ahead) return;  // NaN, of 0 times infinity, continues
      const double distance = distance_of(logit);
      if (comes_before(last_, {bits_of(distance), id})) return;
      if (settings.min_p > 0 && exp(-distance) < settings.min_p) return;
      const double u =
          uniform(settings.seed, static_cast<std::uint32_t>(settings.position), static_cast<std::uint32_t>(id));
      const double exact = -distance - log(-log(u));
      best = better(best, {exact, id});
      ahead = fmaxf(ahead, static_cast<float>(exact) - kMargin);
    });
    return best;
  }

 private:
  // -log(-log(u)) with an error of a few times 2^-17.
  __device__ float noise(std::int32_t token) const {
    const auto id = static_cast<std::uint32_t>(token);
    const SampleRow& settings = row_.settings;
    const auto bits =
        philox({id, static_cast<std::uint32_t>(settings.position), 0, 0},
               {static_cast<std::uint32_t>(settings.seed), static_cast<std::uint32_t>(settings.seed >> 32)});
    const std::uint64_t high = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 12;               // u = (high + 0.5) * 2^-52
    const float rest = (__ull2float_rn((std::uint64_t{1} << 52) - high) - 0.5f) * 0x1p-52f;  // 1 - u
    const float minus_log = rest < 0x1p-6f ? rest * (1 + rest * (0.5f + rest * (1 / 3.0f)))
                                           : -__logf((__ull2float_rn(high) + 0.5f) * 0x1p-52f);
    return -__logf(minus_log);
  }

  __device__ double distance_of(double logit) const {
    return __ddiv_rn(__dsub_rn(largest_, logit), row_.settings.temperature);
  }
  __device__ static std::uint64_t bits_of(double distance) {
    return static_cast<std::uint64_t>(__double_as_longlong(distance));
  }
  __device__ static int bin_of(double distance) { return min(kBins - 1, __double2int_rz(distance * kBinsOfUnit)); }
  // The probability relative to the largest one's, in units of 2^-shift_; the sum of all stays below 2^62.
  __device__ std::uint64_t weight_of(double distance) const {
    constexpr double kSmall = 16;  // from here on float32 is as accurate, in these units
    if (distance >= kSmall) return __float2ull_rn(ldexpf(expf(-static_cast<float>(distance)), shift_));
    return __double2ull_rn(ldexp(exp(-distance), shift_));
  }

  __device__ void clear(Histogram& histogram, int bins) const {
    for (int bin = threadIdx.x; bin < bins; bin += kSampleThreads) {
      histogram.counts[bin] = 0;
      histogram.weights[bin] = 0;
    }
    __syncthreads();
  }
  __device__ void add(int bin, std::uint64_t weight) {
    atomicAdd(&shared_.mine.counts[bin], 1u);
    if (weight != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&shared_.mine.weights[bin]),
                static_cast<unsigned long long>(weight));
  }

  // Reduces `mine` over the cluster into `sum`.
  __device__ void add_up(Histogram& sum, int bins) {
    auto cluster = cg::this_cluster();
    const int share = bins / kBlocks, begin = static_cast<int>(blockIdx.x) * share;
    cluster.sync();
    for (int i = threadIdx.x; i < share; i += kSampleThreads) {
      Amount amount{};
      for (int rank = 0; rank < kBlocks; ++rank) {
        const Histogram& theirs = *cluster.map_shared_rank(&shared_.mine, rank);
        amount = amount + Amount{theirs.counts[begin + i], theirs.weights[begin + i]};
      }
      shared_.share_counts[i] = amount.count;
      shared_.share_weights[i] = amount.weight;
    }
    cluster.sync();
    for (int bin = threadIdx.x; bin < bins; bin += kSampleThreads) {
      const Shared<kBlocks>& theirs = *cluster.map_shared_rank(&shared_, bin / share);
      sum.counts[bin] = theirs.share_counts[bin % share];
      sum.weights[bin] = theirs.share_weights[bin % share];
    }
    __syncthreads();
  }

  // The first bin for which reached(amount so far) is true. If none: bin -1, and `before` is the whole amount.
  template <class Reached>
  __device__ Crossing cross(const Histogram& histogram, int bins, Amount before, Reached reached) {
    const int per_thread = ceil_div(bins, kSampleThreads), thread = static_cast<int>(threadIdx.x);
    const auto bin_amount = [&](int bin) {
      return bin < bins ? Amount{histogram.counts[bin], histogram.weights[bin]} : Amount{};
    };
    Amount mine{};
    for (int i = 0; i < per_thread; ++i) mine = mine + bin_amount(thread * per_thread + i);
    Amount until = mine;  // prefix sum over the warp's threads up to this one
    for (int distance = 1; distance < 32; distance *= 2) {
      const Amount other{__shfl_up_sync(~0u, until.count, distance),
                         __shfl_up_sync(~0u, static_cast<unsigned long long>(until.weight), distance)};
      if (thread % 32 >= distance) until = until + other;
    }
    if (thread % 32 == 31) {
      shared_.warp_counts[thread / 32] = until.count;
      shared_.warp_weights[thread / 32] = until.weight;
    }
    __syncthreads();
    Amount so_far{before.count + until.count - mine.count, before.weight + until.weight - mine.weight};
    for (int warp = 0; warp < thread / 32; ++warp)
      so_far = so_far + Amount{shared_.warp_counts[warp], shared_.warp_weights[warp]};
    bool passed = reached(so_far);
    for (int i = 0; i < per_thread; ++i) {
      const Amount in = bin_amount(thread * per_thread + i), after = so_far + in;
      if (!passed && reached(after)) {
        shared_.crossing = {thread * per_thread + i, so_far, in};
        passed = true;
      }
      so_far = after;
    }
    if (thread == kSampleThreads - 1 && !passed) shared_.crossing = {-1, so_far, {}};
    __syncthreads();
    const Crossing crossing = shared_.crossing;
    __syncthreads();
    return crossing;
  }

  // Digit `digit` of a candidate, most significant first: 0 to 7 of the distance, 8 to 11 of the id.
  __device__ static int digit_of(const Candidate& candidate, int digit) {
    return static_cast<int>(digit < 8 ? candidate.distance >> (56 - 8 * digit) & 255
                                      : static_cast<std::uint32_t>(candidate.id) >> (24 - 8 * (digit - 8)) & 255);
  }

  // Whether a candidate is in `bin` of the first histogram and has the first `digits` digits of `prefix`.
  __device__ static bool is_among(const Candidate& candidate, int bin, const Candidate& prefix, int digits) {
    if (bin_of(__longlong_as_double(static_cast<long long>(candidate.distance))) != bin) return false;
    const int of_distance = min(digits, 8), of_id = max(digits - 8, 0);
    if (of_distance > 0 && (candidate.distance ^ prefix.distance) >> (64 - 8 * of_distance) != 0) return false;
    return of_id == 0 || static_cast<std::uint32_t>(candidate.id ^ prefix.id) >> (32 - 8 * of_id) == 0;
  }

  // Sets `last_` to the first candidate for which reached(amount of it and all before) is true; all threads of the
  // cluster call it. Returns the weight up to it.
  template <class Reached>
  __device__ std::uint64_t keep_until(Reached reached) {
    Crossing crossing = cross(shared_.first, kBins, {}, reached);
    if (crossing.bin < 0) return crossing.before.weight;  // all are kept
    const int bin = crossing.bin;
    Candidate prefix{0, 0};
    int digits = 0;
    for (; crossing.in.count > kListed && digits < kDigits; ++digits) {
      clear(shared_.mine, kDigitBins);
      row_.each([&](auto logit, int id) {
        const double distance = distance_of(logit);
        const Candidate candidate{bits_of(distance), id};
        if (is_among(candidate, bin, prefix, digits)) add(digit_of(candidate, digits), weight_of(distance));
      });
      add_up(shared_.digits, kDigitBins);
      crossing = cross(shared_.digits, kDigitBins, crossing.before, reached);
      if (digits < 8)
        prefix.distance |= static_cast<std::uint64_t>(crossing.bin) << (56 - 8 * digits);
      else
        prefix.id |= crossing.bin << (24 - 8 * (digits - 8));
    }
    list(bin, prefix, digits);
    return rank_listed(crossing.before, reached);
  }

  // Collects the remaining candidates in block 0.
  __device__ void list(int bin, const Candidate& prefix, int digits) {
    auto cluster = cg::this_cluster();
    Shared<kBlocks>& first_block = *cluster.map_shared_rank(&shared_, 0);
    if (threadIdx.x == 0) shared_.num_listed = 0;
    cluster.sync();
    row_.each([&](auto logit, int id) {
      const double distance = distance_of(logit);
      const Candidate candidate{bits_of(distance), id};
      if (!is_among(candidate, bin, prefix, digits)) return;
      const std::uint32_t place = atomicAdd(&first_block.num_listed, 1u);
      if (place >= kListed) return;
      first_block.listed[place] = candidate;
      first_block.listed_weights[place] = weight_of(distance);
    });
    cluster.sync();
  }

  template <class Reached>
  __device__ std::uint64_t rank_listed(const Amount& before, Reached reached) {
    auto cluster = cg::this_cluster();
    if (blockIdx.x == 0) {
      const auto thread = threadIdx.x, num_listed = min(shared_.num_listed, static_cast<std::uint32_t>(kListed));
      Amount mine = before;
      if (thread < num_listed) {
        for (std::uint32_t i = 0; i < num_listed; ++i)
          if (comes_before(shared_.listed[i], shared_.listed[thread]))
            mine = mine + Amount{1, shared_.listed_weights[i]};
        // The candidate that first reaches it is the last one that is kept.
        const Amount with = mine + Amount{1, shared_.listed_weights[thread]};
        if (!reached(mine) && reached(with)) {
          shared_.border = shared_.listed[thread];
          shared_.border_weight = with.weight;
        }
      }
    }
    cluster.sync();
    const Shared<kBlocks>& first_block = *cluster.map_shared_rank(&shared_, 0);
    last_ = first_block.border;
    const std::uint64_t weight = first_block.border_weight;
    cluster.sync();  // before block 0 lists and ranks again
    return weight;
  }

  const Row<kBlocks>& row_;
  double largest_;
  Shared<kBlocks>& shared_;
  int shift_ = 62;
  Candidate last_{~std::uint64_t{0}, kNoToken};  // the last kept candidate; at first all are kept
};

// Bytes of a block's bits of adjusted ids.
template <int kBlocks>
__host__ __device__ std::size_t adjusted_bytes(std::int64_t vocab_size) {
  return static_cast<std::size_t>(ceil_div<std::int64_t>(vocab_size, kRowThreads<kBlocks>)) * kSampleThreads / 8;
}

// The token of the cluster's row; the same in all threads.
template <int kBlocks>
__device__ std::int32_t sampled(const SampleParams& params, unsigned index, Shared<kBlocks>& shared,
                                std::uint32_t* adjusted_ids) {
  const Row<kBlocks> row(params, index, adjusted_ids);
  if (row.adjusted != nullptr) {
    const int words = static_cast<int>(adjusted_bytes<kBlocks>(row.vocab_size) / 4);
    for (int i = threadIdx.x; i < words; i += kSampleThreads) adjusted_ids[i] = 0;
    __syncthreads();
    row.note_history();
    __syncthreads();
  }
  const RowSummary all = join_over_cluster<kSampleThreads, kBlocks>(row.summary(), shared.warps[0], shared.block[0]);
  if (all.unsound != 0 || all.finite == 0) return kUnsoundRow;
  if (row.settings.temperature == 0) return all.largest.id;
  RowSampler<kBlocks> sampler(row, all.largest.logit, shared);
  sampler.keep_top_k_and_p();
  const RowSummary drawn{sampler.draw(all.largest.id), 0, 0};
  return join_over_cluster<kSampleThreads, kBlocks>(drawn, shared.warps[1], shared.block[1]).largest.id;
}

template <int kBlocks>
__global__ void __launch_bounds__(kSampleThreads) sample_rows_on_gpu(const __grid_constant__ SampleParams params) {
  extern __shared__ __align__(16) unsigned char memory[];
  let_later_kernels_start();
  wait_for_earlier_kernels();
  auto& shared = *reinterpret_cast<Shared<kBlocks>*>(memory);
  auto* const adjusted = reinterpret_cast<std::uint32_t*>(memory + sizeof(Shared<kBlocks>));
  for (unsigned row = blockIdx.y; row < params.logits.rows; row += gridDim.y) {
    const std::int32_t token = sampled<kBlocks>(params, row, shared, adjusted);
    if (blockIdx.x == 0 && threadIdx.x == 0) params.tokens[row] = token;
    cg::this_cluster().sync();  // other blocks may still read this block's shared memory
  }
}

template <int kBlocks>
LaunchShape sample_shape(const SampleParams& params) {
  return {.grid = dim3(kBlocks, static_cast<unsigned>(params.logits.rows)),
          .block = kSampleThreads,
          .shared_bytes = sizeof(Shared<kBlocks>) + adjusted_bytes<kBlocks>(params.logits.columns),
          .cluster = kBlocks,
          .fit = GridFit::trimmed};
}

}  // namespace

void sample_sm90(const SampleParams& params, const Lane& lane) {
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  for (std::int64_t first = 0; first < params.logits.rows; first += kMostRows) {
    SampleParams part = params;
    const std::int64_t left = params.logits.rows - first;
    part.logits.rows = left < kMostRows ? left : kMostRows;
    part.logits.data = static_cast<float*>(params.logits.data) + first * params.logits.row_stride;
    part.rows = params.rows + first;
    part.tokens = params.tokens + first;
    constexpr std::size_t kMostSharedBytes = std::size_t{227}
                                             << 10;  // one block alone cannot do more than 900 000 tokens
    const LaunchShape together = sample_shape<kRowBlocks>(part), alone = sample_shape<1>(part);
    if (alone.shared_bytes > kMostSharedBytes ||
        row_blocks_on("sample", sample_rows_on_gpu<kRowBlocks>, together, lane) == kRowBlocks)
      launch_sm90("sample", sample_rows_on_gpu<kRowBlocks>, together, lane, part);
    else
      launch_sm90("sample", sample_rows_on_gpu<1>, alone, lane, part);
  }
}

}  // namespace heddle
