#include "machine/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GpuDiscovery machine(std::vector<std::pair<std::string, int>> gpus) {
  GpuDiscovery found;
  for (auto& [name, major] : gpus) found.gpus.push_back({.name = name, .compute_major = major});
  if (gpus.empty()) found.why_none = "no NVIDIA driver: /dev/nvidiactl is missing";
  return found;
}

const auto everything_fits = [](Device) { return std::string(); };  // FunctionRef takes no functions in GCC 12

template <class Error>
std::string refusal(std::optional<Device> asked, const GpuDiscovery& found) {
  try {
    choose_device(asked, found, everything_fits);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DeviceChoice, NamesAreReadStrictly) {
  EXPECT_EQ(device_named("cpu"), (Device{DeviceKind::cpu, 0}));
  EXPECT_EQ(device_named("cuda"), (Device{DeviceKind::cuda, 0}));
  EXPECT_EQ(device_named("cuda:3"), (Device{DeviceKind::cuda, 3}));
  for (const char* name : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda 1", "cuda:99999999999"})
    EXPECT_EQ(device_named(name), std::nullopt) << name;
}

template <class Error>
std::string refusal_of_ranks(std::string_view asked, int ranks, const GpuDiscovery& found) {
  try {
    choose_rank_devices(asked, ranks, found);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(DeviceChoice, ListsAreReadStrictly) {
  EXPECT_EQ(devices_named("cuda:1"), (std::vector<Device>{{DeviceKind::cuda, 1}}));
  EXPECT_EQ(devices_named("cuda:0,cuda:0"), std::vector<Device>(2, {DeviceKind::cuda, 0}));
  for (const char* names : {"", ",", "cuda:0,", ",cuda:0", "cuda:0,,cuda:1", "cuda:0 cuda:1", "cuda:0, cuda:1"})
    EXPECT_TRUE(devices_named(names).empty()) << names;
}

TEST(DeviceChoice, RanksGetAGpuEachOrTheOnesThatAreNamed) {
  const GpuDiscovery four = machine({{"H200", 9}, {"H200", 9}, {"H200", 9}, {"H200", 9}}), one = machine({{"H100", 9}});
  EXPECT_EQ(choose_rank_devices("cuda", 2, four).devices, devices_named("cuda:0,cuda:1"));
  EXPECT_EQ(choose_rank_devices("", 4, four).devices, devices_named("cuda:0,cuda:1,cuda:2,cuda:3"));
  EXPECT_EQ(choose_rank_devices("cuda:3,cuda:1", 2, four).devices, devices_named("cuda:3,cuda:1"));
  EXPECT_EQ(choose_rank_devices("cuda:0,cuda:0", 2, one).devices, devices_named("cuda:0,cuda:0"));
  EXPECT_EQ(choose_rank_devices("cpu", 3, one).devices, std::vector<Device>(3));
  EXPECT_EQ(choose_rank_devices("", 2, machine({})).devices, std::vector<Device>(2));
}

TEST(DeviceChoice, TooFewGpusForRanksAreAnErrorThatNamesAShare) {
  const GpuDiscovery one = machine({{"H100", 9}});
  EXPECT_THAT(refusal_of_ranks<InputError>("cuda", 2, one),
              HasSubstr("there is one GPU here; ranks can share one: --device cuda:0,cuda:0"));
  EXPECT_THAT(refusal_of_ranks<InputError>("cuda:0,cuda:1", 2, one), HasSubstr("cuda:0,cuda:0"));
  EXPECT_THAT(refusal_of_ranks<InputError>("cuda:0", 3, one), HasSubstr("cuda:0,cuda:0,cuda:0"));
  EXPECT_THAT(refusal_of_ranks<InputError>("cuda:0,cuda:0", 3, one), HasSubstr("names 2 devices"));
  EXPECT_THAT(refusal_of_ranks<InputError>("cpu,cuda:0", 2, one), HasSubstr("all on the CPU, or all on GPUs"));
  EXPECT_THAT(refusal_of_ranks<Failure>("cuda", 2, machine({})), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(refusal_of_ranks<Failure>("cuda:0,cuda:0", 2, machine({{"A100", 8}})), HasSubstr("A100"));
  EXPECT_THAT(choose_rank_devices("", 2, one).reason, HasSubstr("ranks can share it: --device cuda:0,cuda:0"));
}

TEST(DeviceChoice, OneModelOnSeveralDevicesNeedsRanks) {
  require_one_device("");
  require_one_device("cuda:1");
  for (const char* names : {"cuda:0,cuda:0", "cuda:0,cuda:1"}) EXPECT_THROW(require_one_device(names), InputError);
}

TEST(DeviceChoice, TakesTheFirstGpuThatCanAndThatTheModelFits) {
  const GpuDiscovery found = machine({{"A100", 8}, {"H100", 9}, {"H200", 9}});
  const DeviceChoice first = choose_device(std::nullopt, found, everything_fits);
  EXPECT_EQ(first.device, (Device{DeviceKind::cuda, 1}));
  EXPECT_EQ(first.reason, "H100");
  const auto only_the_third = [](Device device) { return device.index == 2 ? std::string() : "too small"; };
  EXPECT_EQ(choose_device(std::nullopt, found, only_the_third).device, (Device{DeviceKind::cuda, 2}));
}

TEST(DeviceChoice, FallsBackToTheCpuAndSaysWhy) {
  const DeviceChoice none = choose_device(std::nullopt, machine({}), everything_fits);
  EXPECT_EQ(none.device, Device{});
  EXPECT_THAT(none.reason, HasSubstr("no NVIDIA driver"));
  const DeviceChoice old = choose_device(std::nullopt, machine({{"A100", 8}}), everything_fits);
  EXPECT_EQ(old.device, Device{});
  EXPECT_THAT(old.reason, AllOf(HasSubstr("A100"), HasSubstr("8.0"), HasSubstr("9.0")));
  const auto too_small = [](Device) { return std::string("3 GiB are missing"); };
  EXPECT_EQ(choose_device(std::nullopt, machine({{"H100", 9}}), too_small).reason, "3 GiB are missing");
}

TEST(DeviceChoice, WhatWasAskedForIsTakenOrRefused) {
  const Device gpu{DeviceKind::cuda, 0};
  EXPECT_EQ(choose_device(Device{}, machine({{"H100", 9}}), everything_fits).device, Device{});
  EXPECT_EQ(choose_device(gpu, machine({{"H100", 9}}), everything_fits).device, gpu);
  EXPECT_THAT(refusal<Failure>(gpu, machine({})), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("--device cpu")));
  EXPECT_THAT(refusal<Failure>(gpu, machine({{"A100", 8}})), HasSubstr("compute capability 8.0"));
  EXPECT_THAT(refusal<InputError>(Device{DeviceKind::cuda, 2}, machine({{"H100", 9}, {"H100", 9}})),
              HasSubstr("there are 2 GPUs here"));
}

TEST(RankDevices, ListsOfCpusNameOneForEachRank) {
  EXPECT_EQ(choose_rank_devices("cpu,cpu", 2, GpuDiscovery{}).devices, std::vector<Device>(2));
  EXPECT_THROW(choose_rank_devices("cpu,cpu", 3, GpuDiscovery{}), InputError);
}

}  // namespace
}  // namespace heddle
