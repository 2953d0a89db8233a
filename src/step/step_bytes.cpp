#include "step/step_bytes.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace heddle {
namespace {

// What is no array.
struct Scalars {
  std::int32_t prefix_tokens = 0;
  StepChoices choices;
};
static_assert(std::is_trivially_copyable_v<Scalars>);

// Calls visit with each array of a plan, in the order of its bytes.
template <class Plan, class Visit>
void for_each_array(Plan& plan, const Visit& visit) {
  visit(plan.tokens);
  visit(plan.positions);
  visit(plan.sequences);
  visit(plan.pages);
  visit(plan.samples);
  visit(plan.page_copies);
}

}  // namespace

void pack(const StepPlan& plan, std::vector<std::byte>& bytes) {
  const Scalars scalars{plan.prefix_tokens, plan.choices};
  bytes.resize(sizeof scalars);
  std::memcpy(bytes.data(), &scalars, sizeof scalars);
  for_each_array(plan, [&](const auto& array) {
    using Element = typename std::remove_cvref_t<decltype(array)>::value_type;
    static_assert(std::is_trivially_copyable_v<Element>);
    const std::uint64_t count = array.size();
    const std::size_t begin = bytes.size(), size = array.size() * sizeof(Element);
    bytes.resize(begin + sizeof count + size);
    std::memcpy(bytes.data() + begin, &count, sizeof count);
    if (size > 0) std::memcpy(bytes.data() + begin + sizeof count, array.data(), size);
  });
}

void unpack(std::span<const std::byte> bytes, StepPlan& plan) {
  Scalars scalars;
  require(bytes.size() >= sizeof scalars, "step: its bytes end early");
  std::memcpy(&scalars, bytes.data(), sizeof scalars);
  plan.prefix_tokens = scalars.prefix_tokens;
  plan.choices = scalars.choices;
  bytes = bytes.subspan(sizeof scalars);
  for_each_array(plan, [&](auto& array) {
    using Element = typename std::remove_cvref_t<decltype(array)>::value_type;
    std::uint64_t count = 0;
    require(bytes.size() >= sizeof count, "step: its bytes end early");
    std::memcpy(&count, bytes.data(), sizeof count);
    bytes = bytes.subspan(sizeof count);
    require(count <= bytes.size() / sizeof(Element), "step: {} elements in {} bytes", count, bytes.size());
    array.resize(static_cast<std::size_t>(count));
    const std::size_t size = array.size() * sizeof(Element);
    if (size > 0) std::memcpy(array.data(), bytes.data(), size);
    bytes = bytes.subspan(size);
  });
  require(bytes.empty(), "step: {} bytes too many", bytes.size());
}

}  // namespace heddle
