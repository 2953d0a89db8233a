#include "base/lane.h"

#include "base/cuda_runtime.h"
#include "base/error.h"

namespace heddle {
int num_sms_of(Device device) {
  if constexpr (kHaveCuda)
    if (device.kind == DeviceKind::cuda) return cuda::num_sms(device.index);
  return 0;
}

Lane::Lane(Stream& of) : Lane(of, Workspace{}) {}

Lane::Lane(Stream& of, Workspace workspace_of)
    : stream(of), num_sms(num_sms_of(of.device())), workspace(workspace_of) {}

Lane::Lane(Stream& of, int sms, Workspace workspace_of) : Lane(of, workspace_of) {
  if (stream.device().kind == DeviceKind::cpu) return;
  require(sms >= 1 && sms <= num_sms, "lane: {} SMs on {}, expected 1 to {}", sms, name_of(stream.device()), num_sms);
  num_sms = sms;
}

Lane::Lane(Stream& of, DryRun& dry_run_of)
    : stream(of), num_sms(of.device().kind == DeviceKind::cuda ? 1 : 0), dry_run(&dry_run_of) {}

Lane Lane::with(Workspace other) const {
  Lane lane = *this;
  lane.workspace = other;
  return lane;
}

}  // namespace heddle
