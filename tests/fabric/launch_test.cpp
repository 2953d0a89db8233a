// What mpirun's environment says, and what it says when it is wrong.
#include "fabric/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"

namespace heddle {
namespace {

using Environment = std::map<std::string, std::string>;

const Environment kOfRankTwo{{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"PMIX_NAMESPACE", "prterun-a/1@1"}, {"OMPI_MCA_orte_precondition_transports", "12-ab"}};

Launch launch_of(const Environment& environment) {
  return read_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(Environment environment, const std::string& name, const char* value) {
  environment.erase(name);
  if (value != nullptr) environment[name] = value;
  try {
    launch_of(environment);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Launch, IsReadFromMpirunsEnvironment) {
  const Launch launch = launch_of(kOfRankTwo);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.local_rank, 0);
  EXPECT_EQ(launch.num_local_ranks, 2);
  EXPECT_EQ(launch.job_key, "prterun-a_1_1-12-ab");
}

TEST(Launch, NamesTheVariableThatIsMissing) {
  for (const auto& [name, value] : kOfRankTwo) {
    if (name == "OMPI_MCA_orte_precondition_transports") continue;  // Open MPI 5 does not set it
    for (const char* nothing : {static_cast<const char*>(nullptr), ""})
      EXPECT_EQ(error_of(kOfRankTwo, name, nothing),
                "not started by mpirun: use `heddle launch -n N -- COMMAND` (" + name + " is not set)");
  }
}

TEST(Launch, RefusesWhatIsNoSuchNumber) {
  for (const char* value : {"4", "-1", "2x", "0x1", "99999999999999999999", "1e0"})
    EXPECT_THAT(error_of(kOfRankTwo, "OMPI_COMM_WORLD_RANK", value), testing::HasSubstr("from 0 to 3")) << value;
  for (const char* value : {"0", "9999999999"})
    EXPECT_THAT(error_of(kOfRankTwo, "OMPI_COMM_WORLD_SIZE", value), testing::HasSubstr("OMPI_COMM_WORLD_SIZE is"));
  EXPECT_THAT(error_of(kOfRankTwo, "OMPI_COMM_WORLD_LOCAL_SIZE", "5"), testing::HasSubstr("from 1 to 4"));
  EXPECT_THAT(error_of(kOfRankTwo, "OMPI_COMM_WORLD_LOCAL_RANK", "2"), testing::HasSubstr("from 0 to 1"));
  EXPECT_THAT(error_of(kOfRankTwo, "PMIX_NAMESPACE", std::string(200, 'a').c_str()), testing::HasSubstr("128"));
}

}  // namespace
}  // namespace heddle
