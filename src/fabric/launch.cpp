#include "fabric/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "machine/system_file.h"

namespace heddle {
namespace {

// Open MPI 4 and 5 both set these.
constexpr const char* kRank = "OMPI_COMM_WORLD_RANK";
constexpr const char* kWorldSize = "OMPI_COMM_WORLD_SIZE";
constexpr const char* kLocalRank = "OMPI_COMM_WORLD_LOCAL_RANK";
constexpr const char* kNumLocalRanks = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr const char* kNamespace = "PMIX_NAMESPACE";
// Random, but not set by Open MPI 5. The namespace alone is made of 16 bits of mpirun's process id.
constexpr const char* kRandomKey = "OMPI_MCA_orte_precondition_transports";

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::size_t kLongestKey = 128;

using Variable = FunctionRef<const char*(const char*)>;

std::string_view value_of(Variable variable, const char* name) {
  const char* value = variable(name);
  if (value == nullptr || *value == '\0')
    throw_error<InputError>("not started by mpirun: use `heddle launch -n N -- COMMAND` ({} is not set)", name);
  return value;
}

int number(Variable variable, const char* name, std::int64_t min, std::int64_t max) {
  const std::string_view text = value_of(variable, name);
  const auto value = whole_number(text);
  if (!value || *value < min || *value > max)
    throw_error<InputError>("{} is \"{}\", expected a whole number from {} to {}: it is mpirun that sets it", name,
                            printable(text, 40), min, max);
  return static_cast<int>(*value);
}

std::string job_key(Variable variable) {
  std::string key(value_of(variable, kNamespace));
  if (const char* random = variable(kRandomKey); random != nullptr && *random != '\0') key.append("-").append(random);
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  };
  std::replace_if(
      key.begin(), key.end(), [&](char c) { return !plain(c); }, '_');
  if (key.size() > kLongestKey) throw_error<InputError>("{} has more than {} characters", kNamespace, kLongestKey);
  return key;
}

}  // namespace

void tell_launcher_of_meeting() {
  const char* const text = std::getenv(kMeetingVariable);
  const auto file = text != nullptr ? whole_number(text) : std::nullopt;
  if (!file) return;
  // A program in between may have closed it, and opened something else of this number.
  std::array<char, 32> target{};
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", *file).c_str(), target.data(), target.size());
  constexpr std::string_view kEventFile = "anon_inode:[eventfd]";
  if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) != kEventFile) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(static_cast<int>(*file), &one, sizeof one);
}

bool started_by_mpirun() {
  return std::getenv(kRank) != nullptr;
}

Launch read_launch() {
  return read_launch([](const char* name) -> const char* { return std::getenv(name); });
}

Launch read_launch(Variable variable) {
  Launch launch;
  launch.world_size = number(variable, kWorldSize, 1, kMostRanks);
  launch.rank = number(variable, kRank, 0, launch.world_size - 1);
  launch.num_local_ranks = number(variable, kNumLocalRanks, 1, launch.world_size);
  launch.local_rank = number(variable, kLocalRank, 0, launch.num_local_ranks - 1);
  launch.job_key = job_key(variable);
  return launch;
}

}  // namespace heddle
