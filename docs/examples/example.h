// What the numbered examples share. Each defines rank_main; main.cpp reads the command line and calls it on every rank.
#pragma once

#include <fmt/core.h>

#include <cstddef>

#include "base/copy.h"
#include "base/error.h"
#include "device/enqueue_body.h"
#include "device/one_sided.h"
#include "fabric/fabric.h"

// What one rank does. `stream` is on the fabric's device.
void rank_main(heddle::Fabric& fabric, heddle::Stream& stream);

namespace heddle::example {

// `count` values that every rank has, zeroed.
template <class T>
T* allocate(Fabric& fabric, std::size_t count = 1) {
  return reinterpret_cast<T*>(fabric.allocate(count * sizeof(T)).data);
}

// The value at `place`, once all that the stream holds is done. Throws what went wrong in the stream.
template <class T>
T read(Fabric& fabric, Stream& stream, const T* place) {
  T value;
  enqueue_copy(stream, &value, place, sizeof value);
  fabric.synchronize(stream);
  return value;
}

}  // namespace heddle::example
