#include "engine/rank_error.h"

#include "base/error.h"

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

}  // namespace heddle
