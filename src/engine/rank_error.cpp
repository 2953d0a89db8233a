#include "engine/rank_error.h"

#include <string_view>

#include "base/error.h"
#include "engine/control_line.h"
#include "engine/rank_world.h"

namespace heddle {

void throw_naming_rank(int rank, const std::exception_ptr& error) {
  constexpr const char* kFormat = "rank {}: {}";
  try {
    std::rethrow_exception(error);
  } catch (const InputError& e) {
    throw_error<InputError>(kFormat, rank, e.what());
  } catch (const InvalidArgument& e) {
    throw_error<InvalidArgument>(kFormat, rank, e.what());
  } catch (const Timeout& e) {
    throw_error<Timeout>(kFormat, rank, e.what());
  } catch (const LostDevice& e) {
    throw_error<LostDevice>(kFormat, rank, e.what());
  } catch (const std::exception& e) {
    throw_error<Failure>(kFormat, rank, e.what());
  } catch (...) {
    throw_error<Failure>("rank {}: an unknown error", rank);
  }
}

void end_among_processes(RankWorld& world) {
  world.line().check();
  const int rank = world.own_rank();
  try {
    throw_naming_rank(rank, std::current_exception());
  } catch (const std::exception& named) {
    world.abandon(rank, named.what());
    try {
      world.line().check();
    } catch (const std::exception& first) {
      if (std::string_view(first.what()) != named.what()) throw;  // of a rank that was faster: all say the same
    }
    throw;
  }
}

}  // namespace heddle
